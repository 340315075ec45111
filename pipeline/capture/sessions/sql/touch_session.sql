-- A client uses the session now: it is not idle. The state as it is, so that an ended one is seen.
update pipeline.sessions
set used_at = now()
where id = %(id)s
returning state
