-- Return true if a table of the follower inherits from another one; no row if one of the two does not exist.
select exists (select from pg_catalog.pg_inherits i where i.inhrelid = c.oid and i.inhparent = p.oid)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join pg_catalog.pg_class p
join pg_catalog.pg_namespace m on m.oid = p.relnamespace
where n.nspname = %(schema)s and c.relname = %(name)s and c.relkind = 'r' and not c.relispartition
    and m.nspname = %(parent_schema)s and p.relname = %(parent_name)s and p.relkind = 'r' and not p.relispartition
