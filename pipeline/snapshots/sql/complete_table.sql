-- A table is complete in the log from the newest event on; a table that was complete before keeps its place.
update pipeline.snapshot_tables t
set complete_seq = coalesce(t.complete_seq, %(seq)s), events_table = coalesce(t.events_table, %(events_table)s),
    first_seq = coalesce(t.first_seq, %(first_seq)s), reason = null,
    told_seqs = coalesce(%(told_seqs)s, t.told_seqs, t.since_seqs)
where t.source_id = %(source)s and t.table_oid = %(oid)s and t.captured
