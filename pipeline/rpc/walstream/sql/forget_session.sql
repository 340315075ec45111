-- A session that owes nothing, or is waited for no longer.
delete from pipeline.walstream_sessions where id = %(id)s
