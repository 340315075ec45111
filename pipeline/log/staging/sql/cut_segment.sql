-- The half staged transaction at its end was removed.
update pipeline.segments set last_lsn = %(commit_lsn)s, row_count = row_count - %(removed)s where id = %(id)s
