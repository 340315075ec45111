-- Which of these are tables of the follower, and no partitions: schema and name.
select n.nspname::text, c.relname::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any(%(names)s) and c.relkind in ('r', 'p') and not c.relispartition
order by 1, 2
