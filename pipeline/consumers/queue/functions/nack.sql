-- Refuse deliveries, so that their items are delivered again.
-- `consumer_id + 0` and `is not null` make Postgres use the index on ack_id, whatever the statistics of the queue say.
-- Locked items are changed by `insert … on conflict do update`, which finds each by its key. Postgres could plan a join
-- as a scan of the complete queue, because the statistics of a queue are always out of date.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.nack(consumer text, ack_ids uuid[], delay interval default null) returns integer
language plpgsql security definer set search_path = ''
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set enable_sort = off
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    held public.consumer_records[];
    spent public.consumer_records[];
begin
    if not me.collapse then
        perform pipeline.require_read_committed(me);
    end if;
    if nack.delay < interval '0' then
        raise invalid_parameter_value using message = 'delay must not be negative; null doubles it each time';
    end if;
    select array_agg(r) into held from (
        select * from public.consumer_records r
        where r.ack_id is not null and r.ack_id = any (nack.ack_ids) and r.consumer_id + 0 = me.id
        order by r.source_table_oid, r.record_pk, r.unkeyed
        for update) r;
    if held is null then
        return 0;
    end if;
    insert into public.consumer_records as r
    select i.* from unnest(held) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'available', ack_id = null, delivered_group = null,
        visible_at = case when r.state = 'delivered' then clock_timestamp() + coalesce(
            nack.delay, least(interval '1 second' * 2 ^ least(r.deliveries - 1, 9), interval '5 minutes')) end,
        deliveries = case when r.state = 'delivered' then r.deliveries else 0 end;
    select array_agg(i) into spent from unnest(held) i
    where i.state = 'delivered' and i.deliveries >= me.max_deliveries;
    if spent is not null then
        perform pipeline.bury(spent);
        if not me.collapse then
            perform pipeline.move_up(spent);
        end if;
    end if;
    perform pipeline.wake_consumer(me.name);
    return cardinality(held);
end $$;
revoke execute on function pipeline.nack(consumer text, ack_ids uuid[], delay interval) from public;
