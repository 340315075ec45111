-- Logical slots of this database, and how far each is behind what the source has written.
select s.slot_name::text as name, s.active_pid is not null as active,
    (s.confirmed_flush_lsn - '0/0')::bigint as confirmed_lsn,
    (case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_insert_lsn() end
        - s.confirmed_flush_lsn)::bigint as lag_bytes
from pg_replication_slots s
where s.slot_type = 'logical' and s.database = current_database()
order by s.slot_name
