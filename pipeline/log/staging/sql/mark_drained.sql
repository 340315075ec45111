-- Everything in these segments is in the events tables; they may be emptied.
update pipeline.segments set state = 'drained' where id = any(%(ids)s) and state = 'full'
