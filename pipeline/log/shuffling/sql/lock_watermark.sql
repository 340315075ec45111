-- The newest seq of the log, with the watermark as planned with, locked; no row when it has moved since. And the last
-- number that the sequence has handed out.
select coalesce(last_seq, 0), pg_sequence_last_value(%(sequence)s::regclass) from pipeline.shuffle_progress
where source_id = %(source)s and epoch = %(epoch)s and commit_lsn = %(watermark)s
for update
