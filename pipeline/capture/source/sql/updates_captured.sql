-- Whether updates and deletes of a table are captured, as it was looked at last.
select keyed from pipeline.snapshot_tables where source_id = %(source)s and table_oid = %(oid)s
