-- The source's end of WAL, and the confirmed LSN of a slot.
select ((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - '0/0')::bigint
    as source_lsn,
    (select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots where slot_name = %(slot)s::text)
    as confirmed_lsn
