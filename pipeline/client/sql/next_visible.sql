-- Seconds until there may be something to receive without a notification; null when nothing waits for a time.
select extract(epoch from pipeline.next_visible(%(consumer)s::text) - clock_timestamp())::float8
