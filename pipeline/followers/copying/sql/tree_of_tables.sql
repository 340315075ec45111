-- The quoted names and the schemas of tables and all their partitions. Foreign tables are left out, because their rows
-- are not the source's.
select distinct quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name, n.nspname::text as schema
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and (c.oid = any(%(oids)s::oid[])
    or c.oid in (select t.relid from unnest(%(oids)s::oid[]) w (oid) cross join pg_catalog.pg_partition_tree(w.oid) t))
order by 1
