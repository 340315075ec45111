-- The watermark stays where it is until this transaction ends.
select from pipeline.shuffle_progress where source_id = %(source)s for update
