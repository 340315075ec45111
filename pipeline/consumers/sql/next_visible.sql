-- Seconds until the next item becomes visible; null if no item waits for a time.
select extract(epoch from pipeline.next_visible(%(name)s::text) - clock_timestamp())::float8 as seconds
