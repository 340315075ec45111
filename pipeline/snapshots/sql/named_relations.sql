-- Relations of the source with the name that a user gave: schema and table, or a table of the schema public.
select c.oid::bigint as oid, n.nspname || '.' || c.relname as name, c.relkind::text as kind,
    c.relpersistence::text as persistence,
    (select rn.nspname || '.' || r.relname from pg_catalog.pg_class r
        join pg_catalog.pg_namespace rn on rn.oid = r.relnamespace
        where c.relispartition and r.oid = pg_catalog.pg_partition_root(c.oid)) as root,
    (select coalesce(array_agg(a.attname::text order by a.attnum), '{}') from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and (
    n.nspname || '.' || c.relname = %(name)s or (n.nspname = 'public' and c.relname = %(name)s))
order by n.nspname || '.' || c.relname <> %(name)s
