-- What staging and the shuffler say of a source, and the last seq that was handed out.
select s.epoch, coalesce(s.commit_lsn, 0) as commit_lsn, s.committed_at, coalesce(s.last_seq, 0) as last_seq,
    coalesce(s.events, 0) as events, p.position, p.commit_lsn as staged_lsn,
    (select case when is_called then last_value else 0 end from {sequence}) as sequence
from pipeline.replication_progress p left join pipeline.shuffle_progress s using (source_id)
where p.source_id = %(source)s and p.worker = 0
