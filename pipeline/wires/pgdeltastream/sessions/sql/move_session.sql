-- Everything before this LSN is acknowledged; never backward. The state as it is, so that an ended one is seen.
update pipeline.sessions
set position = greatest(position, %(position)s), used_at = now()
where id = %(id)s
returning state
