-- If the log has rows of a partition from before it was stored, the partition is compared as a returned one. Otherwise it
-- counts as joined, once the log has everything up to there.
update pipeline.partition_changes c
set in_doubt = not (d.met or %(reached)s), what = case when d.met then 'returned' else c.what end,
    backfill_id = case when not d.met then c.backfill_id end,
    settled_at = case when not d.met or c.settled_as <> 'empty' then c.settled_at end,
    settled_as = case when not d.met or c.settled_as <> 'empty' then c.settled_as end
from (
    select c.id, exists (
        select from pipeline.relations r
        where r.source_id = c.source_id and r.table_oid = c.root_oid and r.relation_oid = c.leaf_oid
            and (r.epoch, r.from_lsn) <= (c.epoch, c.seen_lsn)) as met
    from pipeline.partition_changes c where c.id = %(id)s
) d
where c.id = d.id
