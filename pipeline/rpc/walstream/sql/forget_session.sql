-- A session that owes nothing, or is waited for no longer; no row where somebody else has forgotten it.
delete from pipeline.walstream_sessions where id = %(id)s returning true
