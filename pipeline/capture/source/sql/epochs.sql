-- The epochs of a source, newest first.
select epoch, after_seqs from pipeline.epochs where source_id = %(source)s order by epoch desc
