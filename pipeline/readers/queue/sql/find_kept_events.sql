-- Which tables events are of that delivered items keep, as those do that were dead: retention may have dropped them from
-- the log. And how many table versions the history has.
select r.seq, e.action as event_action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
    (select count(*) from pipeline.relations) as versions
from public.consumer_records r cross join lateral jsonb_populate_record(null::pipeline.events, r.event) e
where r.ack_id = any (%(ack_ids)s::uuid[]) and r.event is not null
