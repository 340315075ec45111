-- Store the reader that streams the session from now on; return the position to begin at, or no row if it is not ready.
update pipeline.sessions
set reader = %(reader)s, reader_since = now(), used_at = now(), used_for = 'stream'
where id = %(id)s and state = 'ready'
returning position
