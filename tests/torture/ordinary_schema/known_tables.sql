-- Tables of the source by their quoted names.
select c.oid::bigint as oid, format('%I.%I', n.nspname, c.relname) as name, n.nspname::text as schema, c.relname::text as short,
    exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary) as keyed,
    not exists (select from pg_constraint f where f.confrelid = c.oid and f.contype = 'f') as alone,
    c.relname ~ '^(renamed|passing|passed|_gh|_del)' as passing,
    exists (select from pg_depend d where d.refobjid = c.oid and d.refobjsubid > 0 and d.deptype in ('a', 'i')
        and d.objid in (select seqrelid from pg_sequence)) as numbered
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname !~ '^(pg_|information_schema|repack)' order by 2
