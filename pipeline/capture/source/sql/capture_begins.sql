-- Since when a table is captured, and whether it has rows from before.
update pipeline.captured_tables set joined_lsn = %(lsn)s, was_empty = %(was_empty)s, root_oid = %(root)s
where source_id = %(source)s and table_oid = %(oid)s and left_at is null
