-- The last seq of each events table of a source, at one moment.
select name, coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s
