-- The comments of all publications: one of them may have the mark of a slot.
select p.pubname::text, pg_catalog.obj_description(p.oid, 'pg_publication')
from pg_catalog.pg_publication p
order by 1
