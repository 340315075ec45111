-- Partitioned tables whose leaves are stored.
select root_oid, epoch from pipeline.partition_looks where source_id = %(source)s
