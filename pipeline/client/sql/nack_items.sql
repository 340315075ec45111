-- Refuse items for so many seconds; null doubles them with each delivery.
select pipeline.nack(%(consumer)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(delay)s::float8))
