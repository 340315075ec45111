-- Store the progress of a batch. The statement that contains this update adds its `where`, which names the worker.
update pipeline.replication_progress
set position = greatest(position, %(position)s),
    commit_lsn = greatest(commit_lsn, %(commit_lsn)s),
    committed_at = coalesce(timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond', committed_at),
    open_commit_lsn = %(open_lsn)s,
    open_changes = %(open_changes)s,
    changes = changes + %(rows)s,
    transactions = transactions + %(transactions)s,
    updated_at = clock_timestamp()
