-- Release a cursor, unless another reader has taken it since.
update pipeline.consumers set reader = null, reader_session = null, reader_since = null
where name = %(name)s and reader_session = %(session)s
