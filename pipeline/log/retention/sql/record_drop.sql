-- Record that everything below a seq is being dropped, before the first row is.
insert into pipeline.retention (events_table, dropped_below, dropped_at, dropping, dropping_name, dropping_since)
values (%(table)s, pipeline.before_jump(%(table)s, %(below)s - 1) + 1, clock_timestamp(), %(oid)s, %(name)s,
    case when %(oid)s::oid is not null then clock_timestamp() end)
on conflict (events_table) do update
set dropped_below = greatest(pipeline.retention.dropped_below, excluded.dropped_below),
    dropped_at = excluded.dropped_at,
    dropping = coalesce(excluded.dropping, pipeline.retention.dropping),
    dropping_name = coalesce(excluded.dropping_name, pipeline.retention.dropping_name),
    dropping_since = coalesce(excluded.dropping_since, pipeline.retention.dropping_since)
