-- The rows of a table are in the follower, as of this snapshot and the position, unless it was wanted anew meanwhile.
update pipeline_follower.copies
set source_epoch = %(source_epoch)s, snapshot = %(snapshot)s, lsn = %(lsn)s, form = %(form)s, rows = %(rows)s,
    copied_at = clock_timestamp(), wanted_seq = null, wanted_at = null, generation = null,
    formed_epoch = null, formed_lsn = null, is_first = false
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
    and wanted_seq is not null and generation = %(generation)s
