-- Record who reads a cursor from now on. Only after find_cursor, in its transaction.
update pipeline.consumers
set reader = %(reader)s, reader_session = %(session)s, reader_since = clock_timestamp()
where name = %(name)s
