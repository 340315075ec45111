-- Settings of the source that may stop replication or its users; null where this version has no such setting.
select current_setting('max_slot_wal_keep_size') as slot_keeps,
    nullif(current_setting('idle_replication_slot_timeout', true), '0') as slot_timeout,
    current_setting('synchronous_standby_names') as synchronous_names
