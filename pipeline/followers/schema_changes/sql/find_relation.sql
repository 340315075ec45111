-- The relation of this name at the follower: a table, view, sequence or index.
select c.oid::bigint from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(name)s
