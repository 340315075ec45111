-- Free a drained segment, whose table the same transaction empties; no row if it is not drained.
update pipeline.segments
set state = 'free', source_id = null, worker = null, first_lsn = null, last_lsn = null, first_ordinal = null,
    row_count = 0
where id = %(id)s and state = 'drained'
