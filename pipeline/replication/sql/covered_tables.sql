-- Tables that publications publish, by any of its ways of listing them; roots whose leaves it publishes too.
select distinct unnest(array[c.oid, coalesce(pg_partition_root(c.oid), c.oid)])::bigint
from pg_publication_tables t
join pg_namespace n on n.nspname = t.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
where t.pubname = any(%(publications)s)
