-- Wake the readers of every events table that has events.
select pg_notify(%(channel)s, json_build_object('table', name, 'seq', last_seq)::text)
from pipeline.events_tables
where source_id = %(source)s and last_seq is not null
