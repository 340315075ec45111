-- So many more changes went these ways. Whether consumers want the shuffler to be woken, which makes items of events.
with counted as (
    insert into pipeline.ways (source_id, way, reason, changes)
    select %(source)s, w.way, w.reason, w.changes
    from unnest(%(ways)s::text[], %(reasons)s::text[], %(changes)s::bigint[]) as w (way, reason, changes)
    on conflict (source_id, way, reason) do update set changes = ways.changes + excluded.changes, updated_at = now()
)
select exists (select from pipeline.consumer_progress)
