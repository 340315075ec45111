-- The newest seq of one events table that is committed.
select coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s and name = %(name)s
