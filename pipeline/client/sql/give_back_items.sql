-- Give back items that the program has not begun to process.
select pipeline.give_back(%(consumer)s::text, %(ack_ids)s::uuid[])
