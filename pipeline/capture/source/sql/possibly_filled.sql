-- Find which of these tables have pages, and whether a transaction that began to write before may still be open: rows
-- that it has written before are not sent (postgres-facts.md 18). The other tables are certainly empty. Partitioned
-- tables have no pages.
select c.oid::bigint, exists (
    select from pg_catalog.pg_locks l
    where l.locktype = 'relation' and l.relation = c.oid and l.mode = 'RowExclusiveLock' and l.granted
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and l.pid is distinct from pg_backend_pid()) as written
from pg_catalog.pg_class c
where c.oid = any(%(oids)s::oid[]) and c.relkind = 'r' and pg_catalog.pg_relation_size(c.oid) > 0
