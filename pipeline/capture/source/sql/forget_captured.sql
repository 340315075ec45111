-- A table that was dropped at the source: nothing of it is missing any more.
delete from pipeline.captured_tables where source_id = %(source)s and table_oid = any(%(oids)s)
