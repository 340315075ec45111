-- A segment that is being emptied may be filled again; no row when it is not drained.
update pipeline.segments
set state = 'free', source_id = null, worker = null, first_lsn = null, last_lsn = null, first_ordinal = null,
    row_count = 0
where id = %(id)s and state = 'drained'
