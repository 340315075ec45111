-- Who streams the session from now on, and the position to begin at; no row where it cannot be streamed.
update pipeline.sessions
set reader = %(reader)s, reader_since = now(), used_at = now(), used_for = 'stream'
where id = %(id)s and state = 'ready'
returning position
