-- Tables that a publication names, as they are inside of our own transaction.
select r.prrelid::bigint
from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
where p.pubname = %(publication)s
