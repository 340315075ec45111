-- The copies of a follower; one without a snapshot is not made yet. Without those that are made while it follows.
select table_oid, source_epoch, snapshot, lsn, form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and wanted_seq is null
order by table_oid
