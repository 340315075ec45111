-- Create a consumer.
select from pipeline.create_consumer(
    name => %(name)s::text, events_table => pipeline.find_events_table(%(events_table)s::text), collapse => %(collapse)s::boolean, kind => %(kind)s::text, tables => %(tables)s::text[], actions => %(actions)s::text[],
    start => %(start)s::text, group_by => %(group_by)s::text[],
    visibility => make_interval(secs => %(visibility)s::float8),
    max_deliveries => %(max_deliveries)s::int, max_unacknowledged => %(max_unacknowledged)s::int
)
