-- Refuse deliveries: their items are there again at once.
select pipeline.nack(%(name)s::text, %(ack_ids)s::uuid[], interval '0')
