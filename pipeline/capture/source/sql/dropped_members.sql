-- Find which of these tables and schemas no longer exist.
select m.oid
from unnest(%(oids)s::bigint[]) m(oid)
where not exists (select from pg_catalog.pg_class c where c.oid = m.oid::oid)
    and not exists (select from pg_catalog.pg_namespace n where n.oid = m.oid::oid)
