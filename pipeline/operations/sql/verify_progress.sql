-- What staging and the shuffler say of a source, and the last seq that was handed out in an events table.
select s.epoch, coalesce(s.commit_lsn, 0) as commit_lsn, s.committed_at,
    coalesce((t.known ->> 'last_seq')::bigint, s.last_seq, 0) as last_seq,
    coalesce((t.known ->> 'events')::bigint, s.events, 0) as events, t.known is not null as counted_by_table,
    p.position, p.commit_lsn as staged_lsn,
    (select case when is_called then last_value else 0 end from {sequence}) as sequence
from pipeline.replication_progress p
left join pipeline.shuffle_progress s using (source_id)
left join lateral ({counted}) t (known) on true
where p.source_id = %(source)s and p.worker = 0
