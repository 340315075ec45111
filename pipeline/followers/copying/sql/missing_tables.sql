-- The names under which the follower has no relation.
select w.schema, w.name
from unnest(%(schemas)s::text[], %(names)s::text[]) w (schema, name)
where not exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = w.schema and c.relname = w.name
)
order by w.schema, w.name
