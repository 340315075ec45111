-- Nothing has gone yet, and somebody turns out to need it.
update pipeline.retention
set dropped_below = %(below)s, dropping = null, dropping_name = null, dropping_since = null
where events_table = %(table)s
