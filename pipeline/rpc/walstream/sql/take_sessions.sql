-- Sessions that another process, or an earlier claim, has left: from now on they are ended. For how many seconds each
-- has been.
update pipeline.walstream_sessions
set ended_at = coalesce(ended_at, clock_timestamp())
where claim <> %(claim)s
returning id, peer, unacknowledged, extract(epoch from clock_timestamp() - ended_at)::float8 as ended_for
