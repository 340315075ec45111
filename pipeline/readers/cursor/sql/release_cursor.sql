-- Let go of a cursor, unless somebody else has taken it since.
update pipeline.consumers set reader = null, reader_session = null, reader_since = null
where name = %(name)s and reader_session = %(session)s
