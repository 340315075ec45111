-- List the columns of a table; `sequence`: the one that its default, or its identity, takes numbers from.
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as not_null,
    a.atthasdef or a.attidentity <> '' as has_default, a.attidentity <> '' as identity,
    coalesce(of_default.oid, of_identity.oid)::bigint as sequence
from pg_attribute a
left join lateral (
    select s.oid from pg_attrdef d
    join pg_depend e on e.classid = 'pg_attrdef'::regclass and e.objid = d.oid and e.refclassid = 'pg_class'::regclass
    join pg_class s on s.oid = e.refobjid and s.relkind = 'S'
    where d.adrelid = a.attrelid and d.adnum = a.attnum
    limit 1
) of_default on true
left join lateral (
    select s.oid from pg_depend e
    join pg_class s on s.oid = e.objid and s.relkind = 'S'
    where e.classid = 'pg_class'::regclass and e.refclassid = 'pg_class'::regclass and e.deptype = 'i'
        and e.refobjid = a.attrelid and e.refobjsubid = a.attnum
    limit 1
) of_identity on true
where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
