-- The counts of one events table.
select to_jsonb(c) from pipeline.events_tables c where c.source_id = %(source)s and c.name = %(table)s
