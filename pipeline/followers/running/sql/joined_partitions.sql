-- Return partitions that joined and whose rows the log gets, or got after this seq. Until: the seq from which the log has
-- the rows; null: not yet. A partition with a reason is not read.
select c.root_oid, c.epoch, c.seen_lsn, c.settled_seq as until
from pipeline.partition_changes c
left join pipeline.backfills r on r.id = c.backfill_id
where c.source_id = %(source)s and c.what in ('attached', 'returned') and (
    c.settled_as in ('read', 'compared', 'whole') and c.settled_seq > %(seq)s
    or c.settled_at is null and (
        c.reason is null and coalesce(r.state not in ('failed', 'cancelled'), true)
        or exists (
            select from pipeline.backfills b
            where b.source_id = c.source_id and b.table_oid = c.root_oid and b.relations is null and b.bounds is null
                and b.state in ('waiting', 'reading', 'paused')
        )
    )
)
