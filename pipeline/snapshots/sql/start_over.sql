-- Let a backfill start again from the beginning; a paused one stays paused.
update pipeline.backfills
set state = case when state = 'paused' then 'paused' else 'waiting' end, reason = null, after_xid = null,
    after_lsn = null, since_seqs = null, files = '{}'
where id = %(id)s and state in ('waiting', 'reading', 'paused')
