-- Known tables as they are now: the names of each and of its partition root, and the version of its catalog row.
-- Columns of the root's unique indexes are read only if the root is not the known one: this query runs every other
-- second.
select c.oid::bigint as oid, c.xmin::text || c.ctid::text as row_version,
    n.nspname::text as relation_schema, c.relname::text as relation_name, root.oid::bigint as table_oid,
    case when root.oid = c.oid then null else rn.nspname::text end as root_schema,
    case when root.oid = c.oid then null else root.relname::text end as root_name,
    (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint as read_at,
    case when root.oid not in (c.oid, known.root) then (
        select jsonb_agg((select jsonb_agg(a.attname) from pg_catalog.pg_attribute a
            where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])))
        from pg_catalog.pg_index i
        where i.indrelid = root.oid and i.indisunique and i.indisvalid and i.indimmediate
            and i.indpred is null and i.indexprs is null) end as root_keys
from unnest(%(oids)s::oid[], %(roots)s::oid[]) known (oid, root)
join pg_catalog.pg_class c on c.oid = known.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class root on root.oid = coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)
join pg_catalog.pg_namespace rn on rn.oid = root.relnamespace
