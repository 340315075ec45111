-- Clear the reader of a session, unless another reader has claimed the session since.
update pipeline.sessions
set reader = null, reader_since = null, used_at = now()
where id = %(id)s and reader = %(reader)s
