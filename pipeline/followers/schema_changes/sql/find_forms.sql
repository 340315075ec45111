-- The tables of a follower that schema changes have reached.
select f.table_oid, f.table_schema, f.table_name, f.source_epoch, f.lsn, f.idx
from pipeline_follower.forms f
where f.source_database_id = %(source)s and f.follower = %(follower)s
