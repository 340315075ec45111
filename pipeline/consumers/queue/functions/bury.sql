-- Turn items into dead letters.
-- Items that are locked already are changed by `insert … on conflict do update`: each is found by its key, where a join
-- could be planned as a scan of the whole queue, whose statistics are always out of date.
create or replace function pipeline.bury(items public.consumer_records[]) returns void
language sql set search_path = ''
as $$
    -- Each keeps its event, which retention may drop from the log.
    insert into public.consumer_records as r
    select i.* from unnest(items) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'dead', unkeyed = -abs(r.unkeyed), ack_id = null, visible_at = null, delivered_group = null,
        event = coalesce(r.event, pipeline.event_of(r))
$$;
revoke execute on function pipeline.bury(items public.consumer_records[]) from public;
