-- Each schema, and whether the user may make objects there.
select nspname::text, pg_catalog.has_schema_privilege(oid, 'usage') and pg_catalog.has_schema_privilege(oid, 'create')
from pg_catalog.pg_namespace
