-- Keep items for a number of seconds from now on.
select pipeline.extend(%(consumer)s::text, %(ack_ids)s::uuid[], make_interval(secs => %(visibility)s::float8))
