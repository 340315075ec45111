-- Tables that inherit from others; not partitions.
select i.inhrelid::pg_catalog.int8, i.inhparent::pg_catalog.int8
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) i.inhrelid
where c.relkind operator(pg_catalog.=) 'r' and not c.relispartition
