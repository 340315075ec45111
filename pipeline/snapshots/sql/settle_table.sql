-- A table has been compared, and all that differed is in the log: what the log says of other rows holds from here on.
update pipeline.snapshot_tables set settled_lsn = %(lsn)s
where source_id = %(source)s and table_oid = %(oid)s and epoch = %(epoch)s and captured
