-- The enums of a database: name, oids of the type and of its array type, and labels in order. A label keeps its oid when
-- it is renamed.
select n.nspname::text as schema, t.typname::text as name, t.oid::bigint as oid, t.typarray::bigint as array_oid,
    array_agg(e.enumlabel::text order by e.enumsortorder) as labels,
    array_agg(e.oid::bigint order by e.enumsortorder) as label_oids
from pg_catalog.pg_type t
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
join pg_catalog.pg_enum e on e.enumtypid = t.oid
group by t.oid, n.nspname, t.typname, t.typarray
