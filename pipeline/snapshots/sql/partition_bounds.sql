-- For each partition, one level for every table from it up to its root: its bound, and the strategy and the columns of its
-- parent's partition key. No columns, if that key has expressions or compares by rules that other databases lack.
-- pg_get_expr gets oid 0 instead of the table, because it would wait for a lock on the table.
with recursive line (leaf, oid, level) as (
    select l.oid, l.oid::pg_catalog.oid, 0 from pg_catalog.unnest(%(leaves)s::pg_catalog.int8[]) l (oid)
    union all
    select l.leaf, i.inhparent, l.level operator(pg_catalog.+) 1
    from line l join pg_catalog.pg_inherits i on i.inhrelid operator(pg_catalog.=) l.oid
)
select l.leaf, pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
    'strategy', p.partstrat,
    'columns', case when p.partexprs is null
        and not 16384 operator(pg_catalog.<=) any (p.partclass::pg_catalog.oid[])
        and not exists (select from pg_catalog.pg_collation n
            where n.oid operator(pg_catalog.=) any (p.partcollation::pg_catalog.oid[]) and not n.collisdeterministic) then (
            select pg_catalog.jsonb_agg(a.attname order by k.place)
            from pg_catalog.unnest(p.partattrs::pg_catalog.int2[]) with ordinality k (number, place)
            join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) p.partrelid
                and a.attnum operator(pg_catalog.=) k.number) end,
    'bound', pg_catalog.pg_get_expr(c.relpartbound, 0)) order by l.level) as bounds
from line l
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.oid
join pg_catalog.pg_inherits i on i.inhrelid operator(pg_catalog.=) l.oid
join pg_catalog.pg_partitioned_table p on p.partrelid operator(pg_catalog.=) i.inhparent
group by l.leaf
