-- Extend the deliveries of items that take longer.
select pipeline.extend(%(name)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(visibility)s::float8)) as count
