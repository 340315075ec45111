-- List the partitions of these tables, at every level, by qualified name.
select n.nspname || '.' || c.relname
from unnest(%(tables)s::text[]) as given(name)
cross join lateral pg_catalog.pg_partition_tree(
    to_regclass(format('%%I.%%I', split_part(given.name, '.', 1), split_part(given.name, '.', 2)))) as part
join pg_catalog.pg_class c on c.oid = part.relid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
