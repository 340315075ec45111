-- The first by name of these tables that belongs to a role that is no superuser, with its owner.
select pg_catalog.format('%%s.%%s', n.nspname, c.relname) as name, r.rolname::pg_catalog.text as owner
from rows from (pg_catalog.unnest(%(schemas)s::pg_catalog.text[]), pg_catalog.unnest(%(names)s::pg_catalog.text[]))
    t (schema, name)
join pg_catalog.pg_namespace n on n.nspname operator(pg_catalog.=) t.schema::pg_catalog.name
join pg_catalog.pg_class c on c.relnamespace operator(pg_catalog.=) n.oid
    and c.relname operator(pg_catalog.=) t.name::pg_catalog.name
join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) c.relowner
where not r.rolsuper
order by n.nspname, c.relname limit 1
