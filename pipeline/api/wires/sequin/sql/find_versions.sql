-- All versions of a table in one epoch, in the order in which they hold; of a partitioned one those of its partitions.
select r.from_lsn, r.from_idx, r.columns, r.key_columns
from pipeline.relations r
where r.source_id = %(source_id)s and r.epoch = %(epoch)s and r.table_oid = %(table_oid)s
order by r.from_lsn, r.from_idx, r.id
