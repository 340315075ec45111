-- Retention has dropped every event before this seq, or is about to.
select coalesce((select dropped_below from pipeline.retention where events_table = %(table)s::text), 1) as dropped_below
