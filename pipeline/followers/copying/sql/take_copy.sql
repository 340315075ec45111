-- A copy that is not made yet, and the position from which on the log is applied to it: locked, the latter so that
-- other tables may be copied beside this one.
select from pipeline_follower.copies c join pipeline_follower.position p using (source_database_id, follower)
where c.source_database_id = %(source)s and c.follower = %(follower)s and c.table_oid = %(oid)s and c.snapshot is null
    and p.source_epoch = %(source_epoch)s and p.seq = %(seq)s and p.released is null
for update of c for share of p
