-- Version of the source, and how many replication slots and walsenders it may have and has free.
select current_setting('server_version_num')::int as version,
    current_setting('max_replication_slots')::int as max_slots,
    (current_setting('max_replication_slots')::int - (select count(*) from pg_replication_slots))::int as free_slots,
    current_setting('max_wal_senders')::int as max_senders,
    (current_setting('max_wal_senders')::int - (select count(*) from pg_stat_get_wal_senders()))::int as free_senders
