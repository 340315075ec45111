-- The enums of a database and their labels in order.
select n.nspname::text as schema, t.typname::text as name, array_agg(e.enumlabel::text order by e.enumsortorder) as labels
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
join pg_catalog.pg_enum e on e.enumtypid = t.oid
group by t.oid, n.nspname, t.typname
