-- True if a table with this oid, or one of the tables with these names, has a column whose type may contain a composite
-- type. The file composites.sql begins with these columns.
select exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join pg_catalog.pg_type t on t.oid = a.atttypid and (t.typtype in ('c', 'd', 'r', 'm') or t.typelem <> 0)
    where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
        and (%(table)s::oid is null or c.oid = %(table)s)
        and (%(tables)s::text[] is null or n.nspname || '.' || c.relname = any(%(tables)s))
)
