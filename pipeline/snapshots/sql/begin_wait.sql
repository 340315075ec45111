-- From which transaction on a backfill may miss nothing.
update pipeline.backfills
set after_xid = %(xid)s::text::xid8, after_lsn = %(lsn)s, since_seqs = %(since_seqs)s, started_at = coalesce(started_at, now())
where id = %(id)s and state = 'waiting'
