-- Write a message that becomes no event, and return its LSN: the stream reaches it soon, even without other writes.
select (pg_catalog.pg_logical_emit_message(true, 'pipeline:position', '') - '0/0')::bigint
