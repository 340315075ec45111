-- End the session that holds a role's lock when the server has waited for its client for too long.
select a.pid, pg_catalog.pg_terminate_backend(a.pid, 2000)
from pipeline.advisory_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.key1 = 1346981968 and l.key2 = pg_catalog.hashtext('pipeline:' || %(role)s)
    and a.wait_event_type = 'Client'
    and a.state_change < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => %(seconds)s)
