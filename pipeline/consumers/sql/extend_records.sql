-- Extend the deliveries of items that the client needs longer for.
select pipeline.extend(%(name)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(visibility)s::float8)) as count
