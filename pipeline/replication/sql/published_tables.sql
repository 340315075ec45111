-- Tables listed in publications, as listed.
select p.pubname::text, c.oid::bigint, n.nspname::text, c.relname::text
from pg_publication p
join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid
join pg_namespace n on n.oid = c.relnamespace
where p.pubname = any(%(publications)s)
