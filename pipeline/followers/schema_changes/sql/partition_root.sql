-- The topmost table above this partitioned table of the follower, or the table itself if it is no partition.
select n.nspname::text, r.relname::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace cn on cn.oid = c.relnamespace
join pg_catalog.pg_class r on r.oid = pg_catalog.pg_partition_root(c.oid)
join pg_catalog.pg_namespace n on n.oid = r.relnamespace
where cn.nspname = %(schema)s and c.relname = %(name)s and c.relkind = 'p'
