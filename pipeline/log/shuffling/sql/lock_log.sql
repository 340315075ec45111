-- The newest seq, locked against another writer.
select coalesce(last_seq, 0) from pipeline.shuffle_progress where source_id = %(source)s for update
