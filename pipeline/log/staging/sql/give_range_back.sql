-- A range that its reader could not read.
update pipeline.snapshot_ranges set state = 'planned', token = null, reader_pid = null, reader_start = null
where id = %(id)s and token = %(token)s and state = 'reading'
