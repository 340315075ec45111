-- The snapshot of the transaction, and the end of WAL read after it: all that the snapshot contains has committed before
-- that end.
select pg_catalog.pg_current_snapshot()::text, (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint
