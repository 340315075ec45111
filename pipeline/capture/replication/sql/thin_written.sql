-- Keep only the first and the last older sample of each interval; the older the samples, the longer the interval.
-- After 8 days none is kept.
with placed as (
    select w.epoch, w.lsn, w.written_at,
        row_number() over (partition by w.epoch, b.stretch, b.bucket order by w.lsn) as first,
        row_number() over (partition by w.epoch, b.stretch, b.bucket order by w.lsn desc) as last
    from pipeline.wal_written w
    cross join lateral (
        select case
            when w.written_at > %(now)s::timestamptz - interval '10 minutes' then 0
            when w.written_at > %(now)s::timestamptz - interval '2 hours' then 20
            when w.written_at > %(now)s::timestamptz - interval '1 day' then 120
            else 900 end as stretch
    ) a
    cross join lateral (select a.stretch, floor(extract(epoch from w.written_at) / nullif(a.stretch, 0)) as bucket) b
    where w.source_id = %(source)s
)
delete from pipeline.wal_written w using placed p
where w.source_id = %(source)s and w.epoch = p.epoch and w.lsn = p.lsn and (
    (p.first > 1 and p.last > 1 and p.written_at <= %(now)s::timestamptz - interval '10 minutes')
    or p.written_at < %(now)s::timestamptz - interval '8 days'
)
