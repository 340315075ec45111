-- Extend deliveries: their items are not delivered again before `visibility` from now.
-- `consumer_id + 0` and `is not null` make Postgres use the index on ack_id, whatever the statistics of the queue say.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.extend(consumer text, ack_ids uuid[], visibility interval) returns integer
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
    extended integer;
begin
    if extend.visibility is null or extend.visibility <= interval '0' then
        raise invalid_parameter_value using message = 'visibility must be longer than 0';
    end if;
    update public.consumer_records r set visible_at = clock_timestamp() + extend.visibility
    where r.ack_id is not null and r.ack_id = any (extend.ack_ids) and r.consumer_id + 0 = me.id;
    get diagnostics extended = row_count;
    return extended;
end $$;
revoke execute on function pipeline.extend(consumer text, ack_ids uuid[], visibility interval) from public;
