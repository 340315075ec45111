-- The follower's unique constraints and unique indexes of a table, with their columns; true for the primary key.
select coalesce(k.conname, ic.relname)::text as name, k.oid is not null as is_constraint, i.indisprimary as is_primary,
    (select array_agg(a.attname::text) from pg_catalog.pg_attribute a
     where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])) as columns
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class ic on ic.oid = i.indexrelid
left join pg_catalog.pg_constraint k on k.conindid = i.indexrelid and k.conrelid = i.indrelid and k.contype in ('p', 'u')
where n.nspname = %(schema)s and c.relname = %(name)s and i.indisunique and i.indpred is null and i.indexprs is null
