-- Return the same as IDENTIFY_SYSTEM, over an ordinary connection. On a primary, names of WAL files begin with its
-- timeline.
select (select system_identifier from pg_catalog.pg_control_system())::text,
    ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 8))::bit(32)::integer,
    (pg_catalog.pg_current_wal_flush_lsn() - '0/0')::bigint,
    current_database()::text
