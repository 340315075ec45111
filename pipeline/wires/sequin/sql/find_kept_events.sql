-- The tables of events that delivered items keep, and the newest table version of their source. Items that were dead keep
-- their events, because retention may have dropped these from the log; so do items of another events table.
select r.seq, e.action as event_action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
    coalesce((
        select r.id from pipeline.relations r where r.source_id = e.source_database_id
        order by r.id desc limit 1), 0) as newest_version
from public.consumer_records r
join pipeline.consumers c on c.id = r.consumer_id
cross join lateral (
    select coalesce(r.event, case when c.events_table is not null then pipeline.event_of(r) end) as event
) kept
cross join lateral jsonb_populate_record(null::pipeline.events, kept.event) e
where r.ack_id = any (%(ack_ids)s::uuid[]) and kept.event is not null
