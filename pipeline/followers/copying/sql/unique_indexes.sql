-- Unique indexes and exclusion constraints of a table, or the one of this name. An index of a partition appears as the
-- topmost index that it is a part of. Each has its table, its keys, its condition, and the statement that drops it.
with recursive line as (
    select i.indexrelid as oid
    from pg_catalog.pg_index i
    join pg_catalog.pg_class x on x.oid = i.indexrelid
    join pg_catalog.pg_class c on c.oid = i.indrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %(schema)s and c.relname = %(table)s and (i.indisunique or i.indisexclusion)
        and (%(name)s::text is null or x.relname = %(name)s)
    union
    select h.inhparent from line l join pg_catalog.pg_inherits h on h.inhrelid = l.oid
)
select n.nspname::text as schema, c.relname::text as table,
    array(select pg_catalog.pg_get_indexdef(l.oid, k.number, false) from pg_catalog.generate_series(1, i.indnkeyatts) k (number))
        || pg_catalog.pg_get_expr(i.indpred, i.indrelid) as definition,
    case when k.oid is null then pg_catalog.format('drop index %%I.%%I', n.nspname, x.relname)
        else pg_catalog.format('alter table %%I.%%I drop constraint %%I', n.nspname, c.relname, k.conname) end as drops
from line l
join pg_catalog.pg_index i on i.indexrelid = l.oid
join pg_catalog.pg_class x on x.oid = l.oid
join pg_catalog.pg_class c on c.oid = i.indrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join pg_catalog.pg_constraint k on k.conindid = l.oid and k.contype in ('p', 'u', 'x')
where not exists (select from pg_catalog.pg_inherits h where h.inhrelid = l.oid)
order by 1, 2, drops
