-- Up to where each events table of a source is written, at one moment.
select name, coalesce(last_seq, 0) from pipeline.events_tables where source_id = %(source)s
