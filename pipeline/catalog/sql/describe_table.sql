-- A table's partition root (itself when it has none), the root's column order, and the table's primary key.
with root as (
    select coalesce(pg_catalog.pg_partition_root(c.oid), c.oid) as oid
    from pg_catalog.pg_class c where c.oid = %(oid)s
)
select root.oid::bigint as table_oid, n.nspname as table_schema, c.relname as table_name,
    (select array_agg(a.attname::text order by a.attnum) from pg_catalog.pg_attribute a
     where a.attrelid = root.oid and a.attnum > 0 and not a.attisdropped) as column_order,
    (select array_agg(a.attname::text order by a.attnum) from pg_catalog.pg_index i
     join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey::int2[])
     where i.indrelid = %(oid)s and i.indisprimary) as primary_key
from root
join pg_catalog.pg_class c on c.oid = root.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
