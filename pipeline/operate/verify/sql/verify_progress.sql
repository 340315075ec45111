-- Progress of staging (up to the first missing change) and of the shuffler, and the last seq that an events table has used.
select s.epoch, coalesce(s.commit_lsn, 0) as commit_lsn, s.committed_at,
    coalesce((t.known ->> 'last_seq')::bigint, s.last_seq, 0) as last_seq,
    coalesce((t.known ->> 'events')::bigint, s.events, 0) as events, t.known is not null as counted_by_table,
    p.position, p.commit_lsn as staged_lsn,
    (select case when is_called then last_value else 0 end from {sequence}) as sequence
from (
    select source_id, max(position) as position, max(commit_lsn) as commit_lsn
    from pipeline.reached_workers where source_id = %(source)s group by source_id
) p
left join pipeline.shuffle_progress s using (source_id)
left join lateral ({counted}) t (known) on true
