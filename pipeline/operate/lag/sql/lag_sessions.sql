-- The sessions that stage and shuffle: seconds since the client spoke, and the session whose lock it waits for.
with ours as (
    select case r.role when 'replication' then 'worker' else r.role end as name, l.pid
    from pipeline.roles r
    join pipeline.advisory_locks l on l.key1 = 1346981968 and l.key2 = pg_catalog.hashtext('pipeline:' || r.role)
    where r.role in ('replication', 'shuffle')
    union all
    select 'staging', p.backend_pid
    from pipeline.replication_progress p
    where p.source_id = %(source)s and p.worker = 0 and p.backend_pid is not null
)
select o.name, a.pid,
    case when a.wait_event_type = 'Client'
        then extract(epoch from pg_catalog.clock_timestamp() - a.state_change)::float8 else 0 end as silent,
    b.pid as blocker, b.application_name as blocked_by,
    extract(epoch from pg_catalog.clock_timestamp() - b.xact_start)::float8 as blocker_seconds
from ours o
join pg_catalog.pg_stat_activity a on a.pid = o.pid
left join pg_catalog.pg_stat_activity b
    on a.wait_event_type = 'Lock' and b.pid = (pg_catalog.pg_blocking_pids(a.pid))[1]
