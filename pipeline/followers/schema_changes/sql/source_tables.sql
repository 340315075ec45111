-- Current tables of the source: name, numbers and names of columns, and the columns of each unique index.
select c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name,
    (select coalesce(array_agg(a.attnum::integer order by a.attnum), '{}') from pg_catalog.pg_attribute a
     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as numbers,
    (select coalesce(array_agg(a.attname::text order by a.attnum), '{}') from pg_catalog.pg_attribute a
     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as names,
    (select coalesce(jsonb_agg((
            select jsonb_agg(a.attname order by a.attname) from pg_catalog.pg_attribute a
            where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1]))), '[]')
        from pg_catalog.pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null) as keys,
    exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary and not i.indimmediate)
        as deferrable_key
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%(oids)s::oid[]) and c.relkind in ('r', 'p')
