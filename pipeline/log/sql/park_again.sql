-- A dead letter still cannot be written.
update pipeline.dead_letters
set state = 'parked', cause = %(cause)s, sqlstate = %(sqlstate)s, attempts = attempts + 1, updated_at = clock_timestamp()
where id = %(id)s
