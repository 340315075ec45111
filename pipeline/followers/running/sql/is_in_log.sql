-- Whether the log has lost the events up to a follower's position. `jumped`: it was restored, and skips the seqs behind that
-- one; `ahead`: its newest event is that one; `differs`: the last event up to there is another one. Of whatever source: so
-- was the place that is stored. Where that event is dropped, nothing can be compared.
select nullif(pipeline.before_jump(null, %(seq)s), %(seq)s) as jumped,
    case when %(seq)s > h.head then h.head end as ahead,
    %(committed_at)s::timestamptz is not null and l.seq is not null and not exists (
        select from pipeline.events e
        where e.seq = l.seq and (e.source_epoch, e.commit_lsn, e.committed_at)
            is not distinct from (%(source_epoch)s::integer, %(commit_lsn)s::bigint, %(committed_at)s::timestamptz)
    ) as differs
from (select greatest(pipeline.log_head(), pipeline.log_floor()) as head) h
left join lateral (select e.seq from pipeline.events e where e.seq <= %(seq)s order by e.seq desc limit 1) l on true
