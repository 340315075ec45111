-- The snapshot of the transaction, and after it the end of WAL: what the snapshot contains has committed before that.
select pg_catalog.pg_current_snapshot()::text, (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint
