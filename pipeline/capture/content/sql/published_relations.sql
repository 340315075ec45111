-- The relations that hold the rows of a table, as far as they are published: with the columns and rows that are.
select c.oid::bigint as oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as name,
    p.columns, p.condition,
    pg_catalog.md5(pg_catalog.concat_ws(' ', c.relname, n.nspname, c.relreplident, (
        select pg_catalog.string_agg(a.xmin || ',' || a.ctid, ' ' order by a.attnum)
        from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0
    ))) as shape
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join lateral (
    select array_agg(distinct column_name) as columns,
        case when bool_or(pt.rowfilter is null) then null
            else string_agg(distinct '(' || pt.rowfilter || ')', ' or ') end as condition
    from pg_catalog.pg_publication_tables pt
    join pg_catalog.pg_publication pub on pub.pubname = pt.pubname and pub.pubinsert
    left join lateral unnest(pt.attnames::text[]) column_name on true
    where pt.pubname = any(%(publications)s) and (pt.schemaname, pt.tablename) in (
        select rn.nspname, r.relname from pg_catalog.pg_class r join pg_catalog.pg_namespace rn on rn.oid = r.relnamespace
        where r.oid = c.oid or r.oid in (select relid from pg_catalog.pg_partition_ancestors(c.oid)))
    having count(*) > 0
) p
where c.relkind = 'r' and c.relpersistence = 'p'
    and (c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_tree(%(oid)s::oid) where isleaf))
order by c.oid
