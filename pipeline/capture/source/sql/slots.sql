-- List logical slots, with their readers and the WAL that they hold back.
select s.slot_name::text as name, s.plugin::text as plugin, s.database::text as database, s.two_phase, s.temporary,
    s.active_pid, a.application_name as holder,
    (s.restart_lsn - '0/0')::bigint as restart_lsn,
    (s.confirmed_flush_lsn - '0/0')::bigint as confirmed_lsn,
    s.wal_status,
    (case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end
        - s.restart_lsn)::bigint as retained_bytes,
    s.safe_wal_size as safe_bytes,
    to_jsonb(s) ->> 'inactive_since' as inactive_since, (to_jsonb(s) ->> 'failover')::boolean as failover
from pg_replication_slots s left join pg_stat_activity a on a.pid = s.active_pid
where s.slot_type = 'logical'
order by s.slot_name
