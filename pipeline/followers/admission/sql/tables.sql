-- The tables of these names as they exist: columns, unique keys, missing rights, and whether a policy would hide rows.
select w.schema, w.name, n.oid is not null as has_schema,
    coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false) as may_use_schema,
    coalesce(pg_catalog.has_schema_privilege(n.oid, 'create'), false) as may_create,
    c.relkind::text as kind,
    array(
        select a.attname::text from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ) as columns,
    -- Only indexes that Postgres checks in every statement, and that contain every row.
    coalesce((
        select pg_catalog.jsonb_agg(array(
            select a.attname::text from pg_catalog.unnest((i.indkey::int2[])[:i.indnkeyatts - 1]) k (attnum)
            join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        ))
        from pg_catalog.pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null
            and i.indexprs is null
    ), '[]') as keys,
    array(
        select p.name from (values ('select', 1), ('insert', 2), ('update', 3), ('delete', 4), ('truncate', 5)) p (name, number)
        where c.oid is not null and not pg_catalog.has_table_privilege(c.oid, p.name)
        order by p.number
    ) as refused,
    coalesce(pg_catalog.row_security_active(c.oid), false) as secured
from unnest(%(schemas)s::text[], %(names)s::text[]) w (schema, name)
left join pg_catalog.pg_namespace n on n.nspname = w.schema
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name
order by w.schema, w.name
