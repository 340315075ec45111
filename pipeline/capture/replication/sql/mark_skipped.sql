-- Mark a blocked transaction as skipped, in the transaction that stages its event.
update pipeline.source_stops set skipped_at = clock_timestamp()
where source_id = %(source)s and epoch = %(epoch)s and commit_lsn = %(commit_lsn)s and skipped_at is null
