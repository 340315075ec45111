-- Changes of partitions that are not settled, the oldest first, with the time when a new leaf was first seen.
select c.id, c.epoch, c.root_oid, c.leaf_oid, c.what, c.bounds, c.backfill_id, c.reason, s.first_seen_at
from pipeline.partition_changes c
left join pipeline.seen_tables s
    on s.source_id = c.source_id and s.epoch = c.epoch and s.table_oid = c.leaf_oid
where c.source_id = %(source)s and c.settled_at is null and (%(root)s::bigint is null or c.root_oid = %(root)s)
order by c.id
