-- From which seq on the log has the whole of each table; null where it does not yet.
select table_oid::bigint, complete_seq from pipeline.snapshots where source_id = %(source)s
