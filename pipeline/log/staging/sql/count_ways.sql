-- Add to the numbers of changes that took each path. Returns true if there are consumers: then the shuffler must be woken,
-- since it makes their items.
with counted as (
    insert into pipeline.ways (source_id, way, reason, changes)
    select %(source)s, w.way, w.reason, w.changes
    from unnest(%(ways)s::text[], %(reasons)s::text[], %(changes)s::bigint[]) as w (way, reason, changes)
    on conflict (source_id, way, reason) do update set changes = ways.changes + excluded.changes, updated_at = now()
)
select exists (select from pipeline.consumer_progress)
