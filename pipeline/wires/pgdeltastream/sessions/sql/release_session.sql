-- Nobody streams the session any more, unless another reader has claimed it meanwhile.
update pipeline.sessions
set reader = null, reader_since = null, used_at = now()
where id = %(id)s and reader = %(reader)s
