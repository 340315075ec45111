-- Where changes are written now; every transaction that has committed has an xid before this one.
select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint, pg_catalog.pg_snapshot_xmax(pg_current_snapshot())::text
