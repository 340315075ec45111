-- Partitions that joined, and may have left before that: no look had stored them.
select c.id, c.epoch, c.seen_lsn from pipeline.partition_changes c where c.source_id = %(source)s and c.in_doubt
