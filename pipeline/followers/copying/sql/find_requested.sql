-- Requested copies of tables while the others follow the log; the oldest request comes first.
select table_oid as oid, wanted_seq as seq, generation, formed_epoch as version_epoch, formed_lsn as version_lsn, is_first
from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and wanted_seq is not null
order by wanted_at, table_oid
