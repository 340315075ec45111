-- The slot of an ended session does not exist any more.
update pipeline.sessions
set dropped_at = now()
where id = %(id)s and state = 'ended' and dropped_at is null
