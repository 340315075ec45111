-- Seconds until there may be something to receive without a notification; null if no item waits for a time.
select extract(epoch from pipeline.next_visible(%(consumer)s::text) - clock_timestamp())::float8
