-- The snapshot of this transaction, and whether these locked relations still have their shapes: the rows of the catalog
-- that describe their columns, as in published_relations.sql.
select pg_catalog.pg_current_snapshot()::pg_catalog.text as snapshot, coalesce((
    select pg_catalog.bool_and(known.shape is not distinct from (
        select pg_catalog.md5(pg_catalog.concat_ws(' ', c.relname, n.nspname, c.relreplident, (
            select pg_catalog.string_agg(pg_catalog.concat(a.xmin, ',', a.ctid), ' ' order by a.attnum)
            from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0
        )))
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where c.oid = known.oid
    ))
    from rows from (pg_catalog.unnest(%(oids)s::pg_catalog.oid[]), pg_catalog.unnest(%(shapes)s::pg_catalog.text[]))
        known (oid, shape)
), true) as unaltered
