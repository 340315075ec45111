-- The tables of events that the receiving statement did not see, and the newest table version of their source.
select e.seq, e.action as event_action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
    coalesce((
        select r.id from pipeline.relations r where r.source_id = e.source_database_id
        order by r.id desc limit 1), 0) as newest_version
from pipeline.events e
where e.seq = any (%(seqs)s::bigint[])
    and (select c.events_table from pipeline.consumers c where c.name = %(name)s::text) is null
