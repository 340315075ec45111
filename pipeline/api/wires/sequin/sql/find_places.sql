-- Which tables of which sources these events are of, and how many table versions the history has. After the items were
-- received, as a statement of its own: they may be newer than the beginning of the one that receives.
select e.source_database_id as source_id, e.source_epoch as epoch, e.source_table_oid as table_oid, e.action,
    (select count(*) from pipeline.relations) as versions, array_agg(e.seq) as seqs
from pipeline.events e where e.seq = any (%(seqs)s::bigint[])
group by 1, 2, 3, 4
