-- True if any of these publications contains a partitioned table that has no partition.
select exists (
    select from pg_catalog.pg_publication p
    join pg_catalog.pg_class c on c.oid = %(oid)s
    where p.pubname = any(%(publications)s) and p.pubinsert and (p.puballtables
        or exists (select from pg_catalog.pg_publication_rel r where r.prpubid = p.oid and r.prrelid = c.oid)
        or exists (select from pg_catalog.pg_publication_namespace s
            where s.pnpubid = p.oid and s.pnnspid = c.relnamespace))
)
