-- Current tables of the source: their columns, and the columns that identify their rows.
select c.oid::bigint as oid, n.nspname::text as table_schema, c.relname::text as table_name,
    (select coalesce(jsonb_agg(jsonb_build_object(
            'name', a.attname, 'attnum', a.attnum, 'type_oid', a.atttypid::bigint, 'type_modifier', a.atttypmod,
            'type_name', pg_catalog.format_type(a.atttypid, null)) order by a.attnum), '[]')
        from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
    (select coalesce(array_agg(a.attname::text order by a.attnum), '{}')
        from pg_catalog.pg_index i
        join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])
        where i.indrelid = c.oid and case c.relreplident when 'i' then i.indisreplident when 'n' then false
            else i.indisprimary end) as key_columns,
    (select coalesce(jsonb_agg((
            select jsonb_agg(a.attname order by a.attname) from pg_catalog.pg_attribute a
            where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1]))), '[]')
        from pg_catalog.pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null) as keys,
    exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary and not i.indimmediate)
        as deferrable_key
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%(oids)s::oid[]) and c.relkind in ('r', 'p')
