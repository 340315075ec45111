-- The composite types of a database that are no tables: their attributes in order, and the types of these.
select n.nspname::text as schema, t.typname::text as name, array_agg(a.attname::text order by a.attnum) as names,
    array_agg(pg_catalog.format_type(a.atttypid, a.atttypmod) order by a.attnum) as types
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
join pg_catalog.pg_class c on c.oid = t.typrelid and c.relkind = 'c'
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
group by t.oid, n.nspname, t.typname
