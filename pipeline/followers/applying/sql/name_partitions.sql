-- Return the names of the partitions of a table of the follower, at any level.
select n.nspname::text, c.relname::text
from pg_catalog.pg_partition_tree(pg_catalog.to_regclass(%(table)s)) p
join pg_catalog.pg_class c on c.oid = p.relid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where p.level > 0
