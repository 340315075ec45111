-- A hash of each relation's identity and columns, null if the relation no longer exists; and true if the user may read
-- all columns of all relations, including the system columns.
select pg_catalog.array_agg(case when c.oid is not null then pg_catalog.md5(pg_catalog.concat_ws(' ', c.oid, c.relkind, (
        select pg_catalog.string_agg(pg_catalog.concat(a.xmin, ',', a.ctid), ' ' order by a.attnum)
        from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0
    ))) end order by named.number) as hashes,
    coalesce(pg_catalog.bool_and(pg_catalog.has_table_privilege(c.oid, 'select')), false) as locations
from pg_catalog.unnest(%(names)s::pg_catalog.text[]) with ordinality named (name, number)
left join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(named.name)
