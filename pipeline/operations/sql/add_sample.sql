-- A sample of positions and counts, for rates; an hour of them is kept.
with old as (
    delete from pipeline.lag_samples where sampled_at < now() - interval '1 hour'
)
insert into pipeline.lag_samples (source_lsn, confirmed_lsn, staged_lsn, shuffled_lsn, staged_changes, events)
select %(source_lsn)s, %(confirmed_lsn)s, r.position, s.commit_lsn, coalesce(p.changes, 0), coalesce(s.events, 0)
from (select max(position) as position from pipeline.reached_workers) r
cross join (select sum(changes)::bigint as changes from pipeline.replication_progress) p
left join pipeline.shuffle_progress s on true
limit 1
