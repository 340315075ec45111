-- Find out if the log has lost events up to a follower's position. `jumped`: the log was restored and skips the seqs after
-- this one; `ahead`: the position is past this seq, the newest of the log; `differs`: the last event up to the position has
-- another commit than the position. Events of all sources count, because the position may have the commit of any source. If
-- retention has dropped that event, nothing can be compared.
select nullif(pipeline.before_jump(null, %(seq)s), %(seq)s) as jumped,
    case when %(seq)s > h.head then h.head end as ahead,
    %(committed_at)s::timestamptz is not null and l.seq is not null and not exists (
        select from pipeline.events e
        where e.seq = l.seq and (e.source_epoch, e.commit_lsn, e.committed_at)
            is not distinct from (%(source_epoch)s::integer, %(commit_lsn)s::bigint, %(committed_at)s::timestamptz)
    ) as differs
from (select greatest(pipeline.log_head(), pipeline.log_floor()) as head) h
left join lateral (select e.seq from pipeline.events e where e.seq <= %(seq)s order by e.seq desc limit 1) l on true
