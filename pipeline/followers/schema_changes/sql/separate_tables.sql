-- Return the schemas and names of those of these tables of the follower that are no partitions.
select n.nspname::text, c.relname::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any(%(names)s) and c.relkind in ('r', 'p') and not c.relispartition
order by 1, 2
