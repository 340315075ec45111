-- Names of types, and the oid of each, or of json or jsonb when it is a domain over one.
with recursive base as (
    select oid as type_oid, oid, typtype, typbasetype from pg_catalog.pg_type where oid = any(%(oids)s::oid[])
    union all
    select base.type_oid, t.oid, t.typtype, t.typbasetype
    from base join pg_catalog.pg_type t on t.oid = base.typbasetype
    where base.typtype = 'd'
)
select type_oid::bigint as oid,
    pg_catalog.format_type(type_oid, null) as type_name,
    coalesce((max(oid::bigint) filter (where oid in (114, 3802) and typtype = 'b')), type_oid::bigint) as base_oid
from base
group by type_oid
