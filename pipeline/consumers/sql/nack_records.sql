-- Refuse items, so that they are delivered again.
select pipeline.nack(%(name)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(delay)s::float8)) as count
