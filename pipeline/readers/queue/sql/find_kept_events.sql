-- Which tables events are of that delivered items keep, as those do that were dead: retention may have dropped them from
-- the log. And the newest table version of their source.
select r.seq, e.action as event_action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
    coalesce((
        select r.id from pipeline.relations r where r.source_id = e.source_database_id
        order by r.id desc limit 1), 0) as newest_version
from public.consumer_records r cross join lateral jsonb_populate_record(null::pipeline.events, r.event) e
where r.ack_id = any (%(ack_ids)s::uuid[]) and r.event is not null
