-- A session that has a lock on one of these relations; sessions with a lock that excludes readers come first.
select a.pid, a.usename::text as user_name, a.application_name as application, a.state
from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.relation = any(%(oids)s::oid[]) and l.granted
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    and l.pid <> pg_catalog.pg_backend_pid()
order by l.mode <> 'AccessExclusiveLock', a.xact_start limit 1
