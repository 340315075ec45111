-- Indexes and sequences that have one of these names and belong to a table that follows the log, with the table's oid at
-- the source.
select n.nspname::text, c.relname::text, case c.relkind when 'S' then 'sequence' else 'index' end, k.table_oid
from unnest(%(schemas)s::text[], %(names)s::text[]) w (schema, name)
join pg_catalog.pg_namespace n on n.nspname = w.schema
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('i', 'I', 'S')
cross join lateral (
    select i.indrelid as oid from pg_catalog.pg_index i where i.indexrelid = c.oid
    union
    select d.refobjid from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid and d.deptype in ('a', 'i')
        and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and c.relkind = 'S'
) o
join pg_catalog.pg_class t on t.oid = o.oid
join pg_catalog.pg_namespace m on m.oid = t.relnamespace
join pipeline_follower.tables k on k.source_database_id = %(source)s and k.follower = %(follower)s
    and k.table_schema = m.nspname and k.table_name = t.relname
order by 1, 2
