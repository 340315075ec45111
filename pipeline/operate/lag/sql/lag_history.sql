-- The samples of the last hour with the lag and the rates, the oldest first. Rates are since the sample before; none
-- after a gap of a minute or a new epoch. An idle worker confirms its position only now and then, so a little WAL that
-- is not old is no lag.
select s.sampled_at as at, o.epoch,
    case when s.source_lsn > s.shuffled_lsn then s.source_lsn - s.shuffled_lsn
        when s.source_lsn <= s.shuffled_lsn then 0 end as behind_bytes,
    case when s.source_lsn <= s.shuffled_lsn or s.sampled_at <= next.written_at then 0
        when s.shuffled_lsn >= s.staged_lsn and s.source_lsn - s.shuffled_lsn < %(idle_bytes)s
            and s.sampled_at < next.written_at + make_interval(secs => %(idle_seconds)s) then 0
        when s.source_lsn > s.shuffled_lsn
        then round(extract(epoch from s.sampled_at - next.written_at), 3)::float8 end as behind_seconds,
    round((s.staged_changes - before.staged_changes) / before.seconds, 1)::float8 as changes_per_second,
    round((s.events - before.events) / before.seconds, 1)::float8 as events_per_second
from (
    select *, lag(sampled_at) over by_time as before_at, lag(staged_changes) over by_time as before_changes,
        lag(events) over by_time as before_events
    from pipeline.lag_samples
    where sampled_at > now() - interval '1 hour'
    window by_time as (order by sampled_at)
) s
left join lateral (
    select e.epoch, e.started_at from pipeline.epochs e
    where e.source_id = %(source)s and e.started_at <= s.sampled_at order by e.epoch desc limit 1
) o on true
left join lateral (
    select s.before_changes as staged_changes, s.before_events as events,
        extract(epoch from s.sampled_at - s.before_at) as seconds
    where s.sampled_at - s.before_at between interval '1 ms' and interval '1 min' and s.before_at >= o.started_at
) before on true
left join lateral (
    select w.written_at from pipeline.wal_written w
    where w.source_id = %(source)s and w.epoch = o.epoch and w.lsn > s.shuffled_lsn order by w.lsn limit 1
) next on true
order by s.sampled_at
