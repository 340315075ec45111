-- Ends the session that holds a role's lock if the server has waited for its client for too long. It also runs at the
-- source, which has no pipeline.advisory_locks.
select a.pid, pg_catalog.pg_terminate_backend(a.pid, 2000)
from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 2
    and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
    and l.classid = 1346981968
    and l.objid = (pg_catalog.hashtext('pipeline:' || %(role)s)::bigint & 4294967295)::oid
    and a.wait_event_type = 'Client'
    and a.state_change < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => %(seconds)s)
