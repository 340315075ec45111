-- The relations that hold the rows of a table: itself or its leaves; with their files and sizes.
select c.oid::bigint as oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name, %(oid)s::bigint as table_oid,
    pg_catalog.pg_relation_filenode(c.oid)::bigint as file,
    pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::integer as blocks,
    c.reltuples::float8 as tuples, c.relpages as pages, pg_catalog.pg_table_size(c.oid) as bytes
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.relpersistence = 'p'
    and (c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_tree(%(oid)s::oid) where isleaf))
order by c.oid
