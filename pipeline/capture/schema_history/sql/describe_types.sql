-- Read names of types, and the oid of each, or of json or jsonb for a domain over one of them. For a domain, also
-- read the name of the type that it is over in the end.
with recursive base as (
    select oid as type_oid, oid, typtype, typbasetype from pg_catalog.pg_type where oid = any(%(oids)s::oid[])
    union all
    select base.type_oid, t.oid, t.typtype, t.typbasetype
    from base join pg_catalog.pg_type t on t.oid = base.typbasetype
    where base.typtype = 'd'
)
select type_oid::bigint as oid,
    pg_catalog.format_type(type_oid, null) as type_name,
    coalesce((max(oid::bigint) filter (where oid in (114, 3802) and typtype = 'b')), type_oid::bigint) as base_oid,
    case when bool_or(typtype = 'd') then pg_catalog.format_type((max(oid::bigint) filter (where typtype <> 'd'))::oid, null)
        else '' end as domain_of
from base
group by type_oid
