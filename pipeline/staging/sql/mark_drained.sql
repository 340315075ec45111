-- These segments hold nothing that is not in the events tables; they may be emptied.
update pipeline.segments set state = 'drained' where id = any(%(ids)s) and state = 'full'
