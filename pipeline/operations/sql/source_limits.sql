-- Settings and counts at the source that replication depends on; null where this version has no such setting.
select current_setting('max_replication_slots')::int as max_slots,
    (select count(*) from pg_replication_slots)::int as slots,
    current_setting('max_wal_senders')::int as max_senders,
    (select count(*) from pg_stat_get_wal_senders())::int as senders,
    current_setting('max_slot_wal_keep_size') as slot_keeps,
    nullif(current_setting('idle_replication_slot_timeout', true), '0') as slot_timeout,
    current_setting('synchronous_standby_names') as synchronous_names
