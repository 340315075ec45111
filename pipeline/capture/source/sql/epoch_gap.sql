-- What lies between an epoch and the one before it.
select previous_position, from_lsn from pipeline.epochs
where source_id = %(source)s and epoch = %(epoch)s and previous_position is not null
