-- The first of these names that is a table, as it was when the snapshot was taken, and the relations that had its rows.
with recursive named as (
    select c.oid, c.relkind
    from pg_catalog.unnest(%(names)s::pg_catalog.text[]) with ordinality n(name, place)
    join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(n.name)
    where c.relkind in ('r', 'p')
    order by n.place
    limit 1
), tree as (
    select oid, relkind from named
    union all
    select c.oid, c.relkind
    from tree
    join pg_catalog.pg_inherits i on i.inhparent = tree.oid
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where tree.relkind = 'p' and c.relispartition
)
select named.oid::pg_catalog.int8,
    array(select tree.oid::pg_catalog.int8 from tree where tree.relkind <> 'p' order by tree.oid) as relations
from named
