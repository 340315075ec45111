-- Lock the watermark and read the newest seq of the log, and the last number of the sequence; no row if the watermark has
-- moved since it was read.
select coalesce(last_seq, 0), pg_sequence_last_value(%(sequence)s::regclass) from pipeline.shuffle_progress
where source_id = %(source)s and epoch = %(epoch)s and commit_lsn = %(watermark)s
for update
