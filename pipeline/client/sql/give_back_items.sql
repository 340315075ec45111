-- Give back items that nobody has begun with.
select pipeline.give_back(%(consumer)s::text, %(ack_ids)s::uuid[])
