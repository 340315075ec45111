-- The number of standbys if none of them is synchronous; else 0, also if this role may not see their state. A program that
-- only receives WAL, copies the cluster or reads a logical slot is no standby.
select case when bool_and(r.sync_state not in ('sync', 'quorum')) then count(*) else 0 end
from pg_stat_replication r
where coalesce(r.application_name, '') not in ('pg_receivewal', 'pg_basebackup') and coalesce(r.state, '') <> 'backup'
    and not exists (
        select from pg_replication_slots s where s.slot_type = 'logical' and s.active_pid = r.pid)
