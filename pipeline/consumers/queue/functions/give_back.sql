-- Give back deliveries that the client has not begun to process: they do not count, and their items are available at
-- once.
-- `consumer_id + 0` and `is not null` make Postgres use the index on ack_id, whatever the statistics of the queue say.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.give_back(consumer text, ack_ids uuid[]) returns integer
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
    given integer;
begin
    update public.consumer_records r
    set state = 'available', ack_id = null, visible_at = null, delivered_group = null,
        deliveries = case when r.state = 'delivered' then greatest(r.deliveries - 1, 0) else 0 end
    where r.ack_id is not null and r.ack_id = any (give_back.ack_ids) and r.consumer_id + 0 = me.id;
    get diagnostics given = row_count;
    if given > 0 then
        perform pipeline.wake_consumer(me.name);
    end if;
    return given;
end $$;
revoke execute on function pipeline.give_back(consumer text, ack_ids uuid[]) from public;
