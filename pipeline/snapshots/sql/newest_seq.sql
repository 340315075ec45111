-- The newest seq of an events table.
select coalesce(max(last_seq), 0) from pipeline.events_tables where source_id = %(source)s and name = %(name)s
