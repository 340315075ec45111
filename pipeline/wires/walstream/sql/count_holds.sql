-- Count down the time of each hold: at most the time between two counts, because the wire was not served in between if
-- more has passed. Sessions that another process or an earlier claim has left become holds, too.
update pipeline.walstream_sessions s
set ended_at = coalesce(s.ended_at, clock_timestamp()),
    acknowledged_seq = coalesce(s.acknowledged_seq, %(position)s),
    hold_seconds = coalesce(s.hold_seconds - least(
        %(interval)s, greatest(0, extract(epoch from clock_timestamp() - s.counted_at))
    ), %(hold)s),
    counted_at = clock_timestamp(),
    highest_seq = greatest(s.highest_seq, (select max(o.acknowledged_seq) from pipeline.walstream_sessions o))
where s.ended_at is not null or s.claim is distinct from %(claim)s
