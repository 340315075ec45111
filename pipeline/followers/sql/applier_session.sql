-- Return what the session does that applies the log here, and which session holds the lock that it waits for.
select a.pid, coalesce(a.state, '') as state, a.wait_event_type, a.wait_event, b.pid as blocker,
    b.application_name as blocked_by, b.state as blocker_state,
    extract(epoch from pg_catalog.clock_timestamp() - b.xact_start)::float8 as blocker_seconds
from pg_catalog.pg_stat_activity a
left join pg_catalog.pg_stat_activity b
    on a.wait_event_type = 'Lock' and b.pid = (pg_catalog.pg_blocking_pids(a.pid))[1]
where a.application_name = %(program)s and a.datname = pg_catalog.current_database()
order by a.state = 'active' desc, a.pid
limit 1
