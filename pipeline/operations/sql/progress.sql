-- Counters and positions of the one source, with rates over about the last minute. While a backlog is read by several
-- workers, counters are of all of them and positions of the first.
with counted as (
    select source_id, sum(changes)::bigint as changes, sum(transactions)::bigint as transactions,
        sum(open_changes)::bigint as open_changes
    from pipeline.replication_progress group by source_id
), past as (
    select * from pipeline.lag_samples where sampled_at > now() - interval '60 seconds' order by sampled_at limit 1
)
select p.position as staged_lsn, p.open_commit_lsn as open_lsn, c.open_changes, c.changes as staged_changes,
    c.transactions as staged_transactions,
    s.commit_lsn as shuffled_lsn, s.committed_at as shuffled_at, s.commit_lsn < p.commit_lsn as unshuffled,
    s.last_seq, coalesce(s.events, 0) as events,
    round(((c.changes - past.staged_changes) / nullif(extract(epoch from now() - past.sampled_at), 0))::numeric, 1)::float8
        as changes_per_second,
    round(((s.events - past.events) / nullif(extract(epoch from now() - past.sampled_at), 0))::numeric, 1)::float8
        as events_per_second,
    now() as read_at
from pipeline.replication_progress p join counted c using (source_id)
left join pipeline.shuffle_progress s using (source_id)
left join past on true
where p.worker = 0
limit 1
