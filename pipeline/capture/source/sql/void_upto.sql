-- Up to which place in the log events know the rows of a table by another key than they have now; none where none do.
select void_epoch, void_lsn from pipeline.snapshot_tables
where source_id = %(source)s and table_oid = %(oid)s and void_lsn is not null
