-- How far a standby has replayed the WAL.
select (pg_catalog.pg_last_wal_replay_lsn() - '0/0')::pg_catalog.int8
