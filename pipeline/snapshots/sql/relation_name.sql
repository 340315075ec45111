-- What a relation is called now, quoted; no row when it was dropped.
select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = %(oid)s
