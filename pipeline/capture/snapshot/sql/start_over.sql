-- A table is read from its beginning once more.
update pipeline.backfills
set state = 'waiting', reason = null, after_xid = null, after_lsn = null, since_seqs = null, files = '{}'
where id = %(id)s and state in ('waiting', 'reading')
