-- A message of ours that becomes no event, and its LSN: the stream comes past it soon, also where nobody else writes.
select (pg_catalog.pg_logical_emit_message(true, 'pipeline:position', '') - '0/0')::bigint
