-- Backfills with ranges that have become events since they were counted.
select distinct backfill_id from pipeline.snapshot_ranges where source_id = %(source)s and state = 'moved'
