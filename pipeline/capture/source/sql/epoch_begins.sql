-- Where an epoch begins.
select from_lsn from pipeline.epochs where source_id = %(source)s and epoch = %(epoch)s
