-- Read from when on each table is captured.
select id, table_oid, joined_lsn, joined_at, was_empty, root_oid from pipeline.captured_tables where source_id = %(source)s and left_at is null
