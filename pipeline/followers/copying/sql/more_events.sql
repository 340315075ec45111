-- Whether the log has events of a source after a seq.
select exists (select from pipeline.events e where e.seq > %(seq)s and e.source_database_id = %(source)s)
