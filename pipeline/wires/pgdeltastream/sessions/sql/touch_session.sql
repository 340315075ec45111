-- A client uses the session now: it is not idle. If no client has streamed it, the client reads pages. The state as it
-- is, so that an ended one is seen.
update pipeline.sessions
set used_at = now(), used_for = coalesce(used_for, 'pages')
where id = %(id)s
returning state
