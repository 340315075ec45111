-- From which seq on the log has the whole of each table; null where it does not yet. As it is stored: that a partition
-- came or left does not make a table incomplete for those that have it.
select table_oid::bigint, complete_seq from pipeline.snapshot_tables where source_id = %(source)s and captured
