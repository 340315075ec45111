-- Seconds until the next item becomes visible; null when none waits for time.
select extract(epoch from pipeline.next_visible(%(name)s::text) - clock_timestamp())::float8 as seconds
