-- Tables whose rows were compared with the log in this epoch, and up to where what it says of them may be from before it.
select t.table_oid, t.settled_lsn from pipeline.snapshot_tables t
where t.source_id = %(source)s and t.epoch = %(epoch)s and t.settled_lsn is not null
