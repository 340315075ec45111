-- Read the table of each table version, and the epoch of the log.
select r.id, p.epoch, r.table_oid, r.table_schema, r.table_name
from pipeline.relations r join pipeline.replication_progress p on p.source_id = r.source_id and p.worker = 0
where r.id = any(%(ids)s)
