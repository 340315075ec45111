-- Tables that a publication names, as our open transaction sees them.
select r.prrelid::bigint
from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
where p.pubname = %(publication)s
