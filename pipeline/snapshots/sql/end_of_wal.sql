-- The place in the WAL where the source writes now.
select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint
