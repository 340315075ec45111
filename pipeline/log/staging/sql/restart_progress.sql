-- Begin a new epoch, and fence the writer of the previous one.
update pipeline.replication_progress
set epoch = %(epoch)s, generation = generation + 1, position = %(position)s, commit_lsn = 0, committed_at = null,
    open_commit_lsn = null, open_changes = 0, updated_at = clock_timestamp()
where source_id = %(source)s and worker = %(worker)s
