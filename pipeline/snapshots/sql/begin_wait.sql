-- Store the xid before which all transactions must end before a backfill reads, and the place in the WAL and the log.
update pipeline.backfills
set after_xid = %(xid)s::text::xid8, after_lsn = %(lsn)s, since_seqs = %(since_seqs)s, started_at = coalesce(started_at, now())
where id = %(id)s and state = 'waiting'
