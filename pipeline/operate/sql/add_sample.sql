-- A sample of positions and counts, for rates and the lag of the last hour, which is kept. If no staged change waits,
-- the log is at the position of the worker, which an idle worker confirms to the source before it is stored.
with old as (
    delete from pipeline.lag_samples where sampled_at < now() - interval '1 hour'
), reached as (
    select max(r.position) as position, max(r.commit_lsn) as commit_lsn
    from pipeline.reached_workers r where %(source)s::uuid is null or r.source_id = %(source)s
)
insert into pipeline.lag_samples (source_lsn, confirmed_lsn, staged_lsn, shuffled_lsn, staged_changes, events)
select %(source_lsn)s, %(confirmed_lsn)s, max(reached.position),
    case when max(s.commit_lsn) < max(reached.commit_lsn) then max(s.commit_lsn)
        else greatest(max(reached.position), %(confirmed_lsn)s::bigint) end,
    coalesce((select sum(p.changes) from pipeline.replication_progress p
        where %(source)s::uuid is null or p.source_id = %(source)s), 0),
    coalesce(max(s.events), 0)
from reached left join pipeline.shuffle_progress s on %(source)s::uuid is null or s.source_id = %(source)s
