-- Make items dead letters.
-- Locked items are changed by `insert … on conflict do update`, which finds each by its key. Postgres could plan a join
-- as a scan of the complete queue, because the statistics of a queue are always out of date.
create or replace function pipeline.bury(items public.consumer_records[]) returns void
language sql set search_path = ''
as $$
    -- Each dead letter keeps its event, because retention may drop the event from the log.
    insert into public.consumer_records as r
    select i.* from unnest(items) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'dead', unkeyed = -abs(r.unkeyed), ack_id = null, visible_at = null, delivered_group = null,
        event = coalesce(r.event, pipeline.event_of(r))
$$;
revoke execute on function pipeline.bury(items public.consumer_records[]) from public;
