-- The copies of a follower; one without a snapshot is not made yet.
select table_oid, source_epoch, snapshot, lsn, form from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s
order by table_oid
