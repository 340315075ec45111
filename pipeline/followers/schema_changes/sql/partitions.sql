-- The attached partitions of a table, parents first, with their bounds, and with the key of those that have partitions.
-- Foreign tables are left out, because their rows are not the source's.
select c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name, pn.nspname::text as parent_schema,
    p.relname::text as parent_name, pg_catalog.pg_get_expr(c.relpartbound, c.oid) as bound,
    case when c.relkind = 'p' then pg_catalog.pg_get_partkeydef(c.oid) end as partition_key
from pg_catalog.pg_partition_tree(%(root)s::oid::regclass) t
join pg_catalog.pg_class c on c.oid = t.relid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_inherits i on i.inhrelid = c.oid and not i.inhdetachpending
join pg_catalog.pg_class p on p.oid = i.inhparent
join pg_catalog.pg_namespace pn on pn.oid = p.relnamespace
where t.level > 0 and c.relkind in ('r', 'p')
order by t.level, c.oid
