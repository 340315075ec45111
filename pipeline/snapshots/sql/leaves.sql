-- The relations that hold the rows of a table, itself or its leaves, with their names, quoted. Waits for locks on them.
select c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.relpersistence = 'p'
    and (c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_tree(%(oid)s::oid) where isleaf))
order by c.oid
