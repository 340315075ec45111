-- Park a dead letter again that still cannot be written. If it was too long to be staged, it keeps that cause.
update pipeline.dead_letters
set state = 'parked', cause = case when record like 'a row of %%' then cause else %(cause)s end,
    sqlstate = case when record like 'a row of %%' then sqlstate else %(sqlstate)s end,
    attempts = attempts + 1, updated_at = clock_timestamp()
where id = %(id)s
