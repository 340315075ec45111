-- Record that a client uses the session now; if no client has streamed it, this one reads pages. Returns the state, so
-- that the caller notices an ended session.
update pipeline.sessions
set used_at = now(), used_for = coalesce(used_for, 'pages')
where id = %(id)s
returning state
