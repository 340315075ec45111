-- Limits that the source itself sets for slots; null if there is no limit, or this version has no such setting.
select current_setting('synchronous_standby_names') as synchronous_names,
    (select s.setting::bigint * 1024 * 1024 from pg_settings s
        where s.name = 'max_slot_wal_keep_size' and s.setting <> '-1') as wal_bytes,
    (select (s.setting || coalesce(s.unit, 's'))::interval from pg_settings s
        where s.name = 'idle_replication_slot_timeout' and s.setting <> '0') as idle_after
