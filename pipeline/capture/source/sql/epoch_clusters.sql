-- In which cluster the source was in each epoch.
select epoch, system_identifier from pipeline.epochs where source_id = %(source)s
