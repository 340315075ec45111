-- Find the transaction that the source could not send, if our position is not past it.
select s.epoch, s.commit_lsn, s.committed_at, s.xid, s.changes, s.cause, s.sqlstate, s.requested_at
from pipeline.source_stops s
join pipeline.replication_progress p on p.source_id = s.source_id and p.worker = 0 and p.epoch = s.epoch
where s.source_id = %(source)s and p.position <= s.commit_lsn and s.skipped_at is null
order by s.commit_lsn
limit 1
