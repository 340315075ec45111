-- Schemas that have a function, relation, type, operator, collation, or text search configuration or dictionary of this
-- name.
select distinct pg_catalog.quote_ident(n.nspname)
from (
    select p.pronamespace as schema from pg_catalog.pg_proc p where p.proname = %(name)s
    union all select c.relnamespace from pg_catalog.pg_class c where c.relname = %(name)s
    union all select t.typnamespace from pg_catalog.pg_type t where t.typname = %(name)s
    union all select o.oprnamespace from pg_catalog.pg_operator o where o.oprname = %(name)s
    union all select c.cfgnamespace from pg_catalog.pg_ts_config c where c.cfgname = %(name)s
    union all select d.dictnamespace from pg_catalog.pg_ts_dict d where d.dictname = %(name)s
    union all select c.collnamespace from pg_catalog.pg_collation c where c.collname = %(name)s
) found join pg_catalog.pg_namespace n on n.oid = found.schema
where n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
order by 1
