-- A sample of positions and counts, for rates; an hour of them is kept.
with old as (
    delete from pipeline.lag_samples where sampled_at < now() - interval '1 hour'
)
insert into pipeline.lag_samples (source_lsn, confirmed_lsn, staged_lsn, shuffled_lsn, staged_changes, events)
select %(source_lsn)s, %(confirmed_lsn)s,
    (select max(r.position) from pipeline.reached_workers r where %(source)s::uuid is null or r.source_id = %(source)s),
    max(s.commit_lsn),
    coalesce((select sum(p.changes) from pipeline.replication_progress p
        where %(source)s::uuid is null or p.source_id = %(source)s), 0),
    coalesce(max(s.events), 0)
from pipeline.shuffle_progress s
where %(source)s::uuid is null or s.source_id = %(source)s
