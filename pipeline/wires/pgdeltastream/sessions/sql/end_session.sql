-- The session is over, for this reason; a row only for whoever ended it first.
update pipeline.sessions
set state = 'ended', reason = %(reason)s, ended_at = now()
where id = %(id)s and state <> 'ended'
returning id
