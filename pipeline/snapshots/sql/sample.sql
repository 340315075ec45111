-- The newest seq of each events table: an event that commits later gets a larger one.
select coalesce(jsonb_object_agg(name, coalesce(last_seq, 0)), '{}')
from pipeline.events_tables where source_id = %(source)s
