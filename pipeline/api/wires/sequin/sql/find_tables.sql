-- The same of events that the statement that received them did not see.
select e.seq, e.action as event_action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
    (select count(*) from pipeline.relations) as versions
from pipeline.events e where e.seq = any (%(seqs)s::bigint[])
