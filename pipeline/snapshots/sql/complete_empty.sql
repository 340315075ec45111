-- The log has reached the place where a table was empty, so the table is complete from the newest event on.
update pipeline.snapshot_tables t
set reason = null, events_table = %(events_table)s, told_seqs = t.since_seqs,
    complete_seq = coalesce((select max(e.last_seq) from pipeline.events_tables e
        where e.source_id = t.source_id and e.name = %(events_table)s), 0)
where t.source_id = %(source)s and t.table_oid = %(oid)s and t.captured and t.complete_seq is null
