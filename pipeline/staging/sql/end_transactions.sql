-- Transactions whose rows were all staged before are complete; no row when a newer worker has taken over.
update pipeline.replication_progress
set position = greatest(position, %(position)s),
    commit_lsn = greatest(commit_lsn, %(commit_lsn)s),
    committed_at = timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond',
    open_commit_lsn = %(open_lsn)s,
    open_changes = %(open_changes)s,
    transactions = transactions + %(transactions)s,
    updated_at = clock_timestamp()
where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
returning pg_notify('pipeline_staged', '')
