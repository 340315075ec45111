-- Return true if a table of this name exists.
select exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace s on s.oid = c.relnamespace
    where s.nspname = %(schema)s and c.relname = %(name)s and c.relkind in ('r', 'p')
)
