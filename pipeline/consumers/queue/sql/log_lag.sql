-- Bytes of WAL by which the source was ahead of the completely staged transactions when the end of its WAL was last
-- sampled; no row if the end was never sampled.
select w.lsn - p.position as bytes
from (
    select r.epoch, max(r.position) as position from pipeline.reached_workers r
    where r.source_id = %(source)s group by r.epoch
) p
cross join lateral (
    select w.lsn from pipeline.wal_written w
    where w.source_id = %(source)s and w.epoch = p.epoch order by w.lsn desc limit 1
) w
