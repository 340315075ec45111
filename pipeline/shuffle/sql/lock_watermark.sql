-- The watermark as planned with, locked; no row when it has moved since.
select epoch from pipeline.shuffle_progress
where source_id = %(source)s and commit_lsn = %(watermark)s
for update
