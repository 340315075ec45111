-- Acknowledge items.
select pipeline.ack(%(consumer)s::text, %(ack_ids)s::uuid[])
