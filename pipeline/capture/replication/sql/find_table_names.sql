-- Known tables as they are now: the names of each and of its partition root, and the version of its catalog row.
select c.oid::bigint as oid, c.xmin::text || c.ctid::text as row_version,
    n.nspname::text as relation_schema, root.oid::bigint as table_oid,
    case when root.oid = c.oid then null else rn.nspname::text end as root_schema,
    case when root.oid = c.oid then null else root.relname::text end as root_name,
    (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint as read_at
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class root on root.oid = coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)
join pg_catalog.pg_namespace rn on rn.oid = root.relnamespace
where c.oid = any(%(oids)s::oid[])
