-- Refuse items for a number of seconds; null: 1 second, doubled with each delivery.
select pipeline.nack(%(consumer)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(delay)s::float8))
