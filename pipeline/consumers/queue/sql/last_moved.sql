-- The newest seq that is committed.
select coalesce(last_seq, 0) from pipeline.shuffle_progress where source_id = %(source)s
