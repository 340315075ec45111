-- Store that a table is no longer captured. The log keeps its events.
update pipeline.snapshot_tables set captured = false, reason = %(reason)s, complete_seq = null, first_seq = null,
    backfill_id = null, reread = null, settled_lsn = null
where source_id = %(source)s and table_oid = %(oid)s
