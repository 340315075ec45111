-- Return those of these tables whose oid is not that of a table of this schema and name.
select t.table_schema || '.' || t.table_name
from unnest(%(oids)s::bigint[], %(schemas)s::text[], %(names)s::text[]) as t (oid, table_schema, table_name)
where not exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = t.oid::oid and n.nspname = t.table_schema and c.relname = t.table_name
)
order by 1
