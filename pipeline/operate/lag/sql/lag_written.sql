-- The samples around each LSN: the last with an end of WAL up to the LSN, and the first with an end of WAL beyond it.
select a.lsn as asked, b.lsn as below, b.written_at as below_at, n.lsn as above, n.written_at as above_at
from unnest(%(lsns)s::bigint[]) as a (lsn)
left join lateral (
    select w.lsn, w.written_at from pipeline.wal_written w
    where w.source_id = %(source)s and w.epoch = %(epoch)s and w.lsn <= a.lsn
    order by w.lsn desc limit 1
) b on true
left join lateral (
    select w.lsn, w.written_at from pipeline.wal_written w
    where w.source_id = %(source)s and w.epoch = %(epoch)s and w.lsn > a.lsn
    order by w.lsn limit 1
) n on true
