-- The median and the 99th percentile of the seconds from commit to insert, of the newest 1,000 events; no row without
-- an event.
select percentile_disc(0.5) within group (order by seconds) as median_seconds,
    percentile_disc(0.99) within group (order by seconds) as p99_seconds
from (
    select greatest(0, round(extract(epoch from inserted_at - committed_at), 3))::float8 as seconds
    from {events} order by seq desc limit 1000
) newest
having count(*) > 0
