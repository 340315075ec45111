-- Read the newest seq that a reader can have received: its event may be dropped, or it may be a gap. Null at a standby,
-- which may lag behind events that its reader has received elsewhere.
select case when not pg_catalog.pg_is_in_recovery() then greatest(
    (select max(seq) from {events}),
    (select last_value from pg_catalog.pg_sequences where schemaname = %(schema)s and sequencename = %(sequence)s),
    0
) end
