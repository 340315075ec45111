-- Positions of staging and the shuffle, counts, rates over about the last minute, and what the worker waited for while
-- changes were waiting. While several workers read a backlog, counts include all workers, and positions only workers
-- before whose part no change is missing. `complete_at`: when the source last had written no more than the log has.
with counted as (
    select source_id, sum(changes)::bigint as changes, sum(transactions)::bigint as transactions,
        sum(open_changes)::bigint as open_changes, max(open_commit_lsn) filter (where worker = 0) as open_lsn
    from pipeline.replication_progress group by source_id
), reached as (
    select source_id, max(position) as position, max(commit_lsn) as commit_lsn from pipeline.reached_workers group by 1
), past as (
    select * from pipeline.lag_samples where sampled_at > now() - interval '60 seconds' order by sampled_at limit 1
)
select r.position as staged_lsn, c.open_lsn, c.open_changes, c.changes as staged_changes,
    c.transactions as staged_transactions,
    s.commit_lsn as shuffled_lsn, s.committed_at as shuffled_at, s.commit_lsn < r.commit_lsn as unshuffled,
    written.at as complete_at, s.last_seq, coalesce(s.events, 0) as events,
    round(((c.changes - past.staged_changes) / nullif(extract(epoch from now() - past.sampled_at), 0))::numeric, 1)::float8
        as changes_per_second,
    round(((s.events - past.events) / nullif(extract(epoch from now() - past.sampled_at), 0))::numeric, 1)::float8
        as events_per_second,
    now() as read_at,
    o.id as source_id, o.epoch, r.position as staged, r.commit_lsn as complete,
    case when s.epoch = o.epoch then s.commit_lsn else 0 end as watermark,
    l.moved_lsn as moved, l.starved, l.blocked, l.sending,
    extract(epoch from clock_timestamp() - l.measured_at)::float8 as load_age
from pipeline.sources o
join counted c on c.source_id = o.id
join reached r on r.source_id = o.id
left join pipeline.shuffle_progress s on s.source_id = o.id
left join pipeline.worker_load l on l.source_id = o.id and l.epoch = o.epoch
left join past on true
left join lateral (
    select w.written_at as at from pipeline.wal_written w
    where w.source_id = o.id and w.epoch = o.epoch
        and w.lsn <= case when s.epoch = o.epoch and s.commit_lsn < r.commit_lsn then s.commit_lsn else r.position end
    order by w.lsn desc limit 1
) written on true
where o.id = %(source)s
