-- Return the condition that is true for the rows of an attached partition in its root. Null for a default partition, whose
-- condition depends on the other partitions of the moment, and for a hash partition, whose hash contains the root's oid.
with recursive chain as (
    select c.oid, c.relpartbound, i.inhparent from pg_catalog.pg_class c
    join pg_catalog.pg_inherits i on i.inhrelid = c.oid and not i.inhdetachpending
    where c.oid = %(partition)s and c.relispartition
    union all
    select c.oid, c.relpartbound, i.inhparent from chain h
    join pg_catalog.pg_class c on c.oid = h.inhparent and c.relispartition
    join pg_catalog.pg_inherits i on i.inhrelid = c.oid and not i.inhdetachpending
)
select case when bool_or(h.inhparent = %(root)s) and not bool_or(
        pg_catalog.pg_get_expr(h.relpartbound, h.oid) = 'DEFAULT' or p.partstrat = 'h'
    ) then pg_catalog.pg_get_partition_constraintdef(%(partition)s) end
from chain h join pg_catalog.pg_partitioned_table p on p.partrelid = h.inhparent
