-- Acknowledge items.
select pipeline.ack(%(name)s::text, %(ack_ids)s::uuid[]) as count
