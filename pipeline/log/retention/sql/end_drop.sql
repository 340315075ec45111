-- The partition was dropped.
update pipeline.retention set dropping = null, dropping_name = null, dropping_since = null
where events_table = %(table)s
