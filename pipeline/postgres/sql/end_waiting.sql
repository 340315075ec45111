-- Ends those of the sessions `pids` that have waited for a lock for `seconds`. One statement finds and ends them.
select a.pid, pg_catalog.pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity a
where a.usename = current_user and exists (
    select from pg_catalog.pg_locks l
    where l.pid = a.pid and l.pid = any(%(pids)s) and not l.granted
        and l.waitstart < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => %(seconds)s)
)
