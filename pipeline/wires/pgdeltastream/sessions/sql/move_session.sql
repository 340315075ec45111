-- Store that everything before this LSN is acknowledged; the position never moves back. Returns the state, so that the
-- caller notices an ended session.
update pipeline.sessions
set position = greatest(position, %(position)s), used_at = now()
where id = %(id)s
returning state
