-- Of delivered items that keep their event, as those that were dead do, which tables of which sources they are of:
-- retention may have dropped it from the log. And how many table versions the history has.
select e.source_database_id as source_id, e.source_epoch as epoch, e.source_table_oid as table_oid, e.action,
    (select count(*) from pipeline.relations) as versions, array_agg(r.seq) as seqs
from public.consumer_records r cross join lateral jsonb_populate_record(null::pipeline.events, r.event) e
where r.ack_id = any (%(ack_ids)s::uuid[]) and r.event is not null
group by 1, 2, 3, 4
