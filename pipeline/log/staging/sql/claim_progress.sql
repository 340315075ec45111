-- Become the writer of this source: from now on every older generation is fenced.
update pipeline.replication_progress
set generation = generation + 1, open_commit_lsn = null, open_changes = 0, updated_at = clock_timestamp(),
    backend_pid = pg_backend_pid(),
    backend_start = (select backend_start from pg_stat_activity where pid = pg_backend_pid())
where source_id = %(source)s and worker = %(worker)s
returning generation, position, commit_lsn
