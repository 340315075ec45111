-- Read how far the source has written WAL, at what time, and the state of decoding for the slot.
select ((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end) - '0/0')::bigint
    as lsn,
    clock_timestamp() as written_at,
    (select t.spill_bytes from pg_stat_replication_slots t where t.slot_name = %(slot)s::text) as spilled_bytes,
    coalesce((
        select a.wait_event = 'WalSenderWriteData'
        from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid
        where s.slot_name = %(slot)s::text
    ), false) as sending
