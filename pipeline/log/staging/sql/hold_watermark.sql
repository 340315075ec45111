-- Lock the watermark until this transaction ends.
select from pipeline.shuffle_progress where source_id = %(source)s for update
