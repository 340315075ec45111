-- Return the commit of the last event up to a seq: epoch, LSN and time.
select source_epoch, commit_lsn, committed_at from pipeline.events where seq <= %(seq)s order by seq desc limit 1
