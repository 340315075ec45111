-- A dead letter was written to the log.
update pipeline.dead_letters
set state = 'retried', retried_seq = %(seq)s, attempts = attempts + 1, updated_at = clock_timestamp()
where id = %(id)s
