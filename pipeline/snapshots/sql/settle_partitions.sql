-- Settle the changes of partitions that an ended backfill read or compared. A backfill of the whole table settles all
-- earlier ones.
update pipeline.partition_changes c
set settled_at = now(), settled_seq = %(seq)s,
    settled_as = case when not %(partial)s then 'whole' when %(compares)s then 'compared' else 'read' end
where c.source_id = %(source)s and c.root_oid = %(root)s and c.settled_at is null
    and case when %(partial)s then c.backfill_id = %(backfill)s
        else (%(compares)s or c.what = 'attached') and (c.epoch < %(epoch)s or c.seen_lsn <= %(lsn)s) end
