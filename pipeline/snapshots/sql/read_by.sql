-- Store which backfill reads all of a table.
update pipeline.snapshot_tables set backfill_id = %(backfill)s, reason = null, reread = null
where source_id = %(source)s and table_oid = %(oid)s
