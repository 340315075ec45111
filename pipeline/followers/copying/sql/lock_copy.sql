-- Lock an unfinished copy, and the position from which the log will be applied to it. The shared lock of the position
-- lets other sessions copy other tables at the same time.
select from pipeline_follower.copies c join pipeline_follower.position p using (source_database_id, follower)
where c.source_database_id = %(source)s and c.follower = %(follower)s and c.table_oid = %(oid)s and c.snapshot is null
    and p.source_epoch = %(source_epoch)s and p.seq = %(seq)s and p.released is null
for update of c for share of p
