-- Return the names of a table's columns; no row if the table does not exist.
select array(
    select a.attname::text from pg_catalog.pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(name)s and c.relkind in ('r', 'p')
