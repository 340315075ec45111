-- Record that the log up to this seq is in the items of these consumers.
update pipeline.consumer_progress p set folded_seq = %(seq)s
from pipeline.consumers c
where c.id = any (%(ids)s::int[]) and p.consumer_id = pipeline.progress_id(c)
