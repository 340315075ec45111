-- In the transaction that stages the event which says so.
update pipeline.source_stops set skipped_at = clock_timestamp()
where source_id = %(source)s and epoch = %(epoch)s and commit_lsn = %(commit_lsn)s and skipped_at is null
