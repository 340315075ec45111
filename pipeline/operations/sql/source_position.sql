-- How far the source has written.
select ((case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end) - '0/0')::bigint
