-- A reader turns out to need the partition, and nothing of it was dropped yet.
update pipeline.retention
set dropped_below = %(below)s, dropping = null, dropping_name = null, dropping_since = null
where events_table = %(table)s
