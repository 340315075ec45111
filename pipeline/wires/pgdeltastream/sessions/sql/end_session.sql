-- Mark the session as ended, with this reason; no row if it had already ended.
update pipeline.sessions
set state = 'ended', reason = %(reason)s, ended_at = now()
where id = %(id)s and state <> 'ended'
returning id
