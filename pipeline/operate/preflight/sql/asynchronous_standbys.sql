-- How many standbys the cluster has, where none of them is synchronous; 0 also where this role may not see that. What only
-- receives WAL, or copies the cluster, is no standby, nor is what reads a logical slot.
select case when bool_and(r.sync_state not in ('sync', 'quorum')) then count(*) else 0 end
from pg_stat_replication r
where coalesce(r.application_name, '') not in ('pg_receivewal', 'pg_basebackup') and coalesce(r.state, '') <> 'backup'
    and not exists (
        select from pg_replication_slots s where s.slot_type = 'logical' and s.active_pid = r.pid)
