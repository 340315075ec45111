-- Record that the log up to this seq is in the items of these consumers.
update pipeline.consumer_progress set folded_seq = %(seq)s where consumer_id = any (%(ids)s::int[])
