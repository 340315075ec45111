-- End the session of a process that reads a cursor, if it has been silent for this many seconds and must be frozen.
select pg_catalog.pg_terminate_backend(a.pid, 2000)
from pg_catalog.pg_stat_activity a
where a.pid = %(pid)s and a.wait_event_type = 'Client'
    and a.state_change < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => %(seconds)s)
