-- The table that this partition of the follower belongs to directly.
select pn.nspname::text, p.relname::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_inherits i on i.inhrelid = c.oid
join pg_catalog.pg_class p on p.oid = i.inhparent
join pg_catalog.pg_namespace pn on pn.oid = p.relnamespace
where n.nspname = %(schema)s and c.relname = %(name)s and c.relispartition
