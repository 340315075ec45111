-- The rows of a table are in the follower, as of this snapshot.
update pipeline_follower.copies
set source_epoch = %(source_epoch)s, snapshot = %(snapshot)s, lsn = %(lsn)s, form = %(form)s, rows = %(rows)s,
    copied_at = clock_timestamp()
where source_database_id = %(source)s and follower = %(follower)s and table_oid = %(oid)s
