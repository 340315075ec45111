-- Which backfill reads or compares partitions.
update pipeline.partition_changes set backfill_id = %(backfill)s where id = any(%(ids)s) and settled_at is null
