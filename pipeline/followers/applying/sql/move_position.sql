-- Move the position, if it is where this applier expects it and was not released; waits for another applier's
-- transaction.
update pipeline_follower.position
set source_epoch = %(source_epoch)s, seq = %(seq)s, commit_lsn = %(commit_lsn)s, committed_at = %(committed_at)s,
    applied_at = clock_timestamp()
where source_database_id = %(source)s and follower = %(follower)s
    and source_epoch = %(epoch_before)s and seq = %(seq_before)s and generation = %(generation)s and released is null
