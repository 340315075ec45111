-- The watermark as planned with, locked; no row when it has moved since.
select epoch, coalesce(last_seq, 0) from pipeline.shuffle_progress
where source_id = %(source)s and commit_lsn = %(watermark)s
for update
