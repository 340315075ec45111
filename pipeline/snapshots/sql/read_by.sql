-- Which backfill reads a table whole.
update pipeline.snapshot_tables set backfill_id = %(backfill)s, reason = null, reread = null
where source_id = %(source)s and table_oid = %(oid)s
