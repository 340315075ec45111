-- Return the newest change of each partition of these tables. is_read: its rows are being read or compared.
select distinct on (c.root_oid, c.leaf_oid) c.id, c.root_oid, c.leaf_oid, c.leaf_name, c.what, c.epoch, c.seen_lsn, c.seen_at,
    c.settled_as, c.settled_seq, c.settled_at is null and (
        c.reason is null and coalesce(b.state not in ('failed', 'cancelled'), true)
        or exists (
            select from pipeline.backfills w
            where w.source_id = c.source_id and w.table_oid = c.root_oid and w.relations is null and w.bounds is null
                and w.state in ('waiting', 'reading', 'paused')
        )
    ) as is_read
from pipeline.partition_changes c
left join pipeline.backfills b on b.id = c.backfill_id
where c.source_id = %(source)s and c.root_oid = any(%(roots)s) and c.what <> 'truncated'
order by c.root_oid, c.leaf_oid, c.id desc
