-- Move the position past WAL without changes for the log; no row if a newer worker has taken over.
update pipeline.replication_progress
set position = greatest(position, %(position)s), updated_at = clock_timestamp()
where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
returning position
