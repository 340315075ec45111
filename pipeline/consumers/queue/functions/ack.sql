-- Acknowledge deliveries by their ack_ids. An id that is expired or unknown acknowledges nothing.
-- An acknowledgement survives a crash, whatever the session's synchronous_commit is.
-- `consumer_id + 0` and `is not null` make Postgres use the index on ack_id, whatever the statistics of the queue say.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.ack(consumer text, ack_ids uuid[]) returns integer
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
    gone integer;
    touched integer;
    emptied boolean;
    settled public.consumer_records[];
begin
    if not me.collapse then
        perform pipeline.require_read_committed(me);
        with gone as (
            delete from public.consumer_records r
            where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            returning r)
        select array_agg(g.r), bool_or((g.r).action = 'truncate') into settled, emptied from gone g;
        touched := pipeline.move_up(settled);  -- before the condition, which Postgres may evaluate without it
        if touched > 0 or emptied or settled is not null and (me.max_unacknowledged is not null or exists (
            select from public.consumer_records r
            where r.consumer_id = me.id and r.action = 'truncate' and r.state <> 'dead'))
        then
            perform pipeline.wake_consumer(me.name);
        end if;
        if settled is not null and current_setting('synchronous_commit') = 'off' then
            perform pipeline.commit_durably();
        end if;
        return coalesce(cardinality(settled), 0);
    end if;
    with settled as (
        delete from public.consumer_records r
        where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            and r.state = 'delivered'
        returning r.action)
    -- Items behind a truncate waited for it, so clients are woken.
    select count(*), bool_or(s.action = 'truncate') into gone, emptied from settled s;
    touched := 0;
    if gone < cardinality(ack.ack_ids) then
        update public.consumer_records r
        set state = 'available', ack_id = null, visible_at = null, delivered_group = null, deliveries = 0,
            queued_seq = r.seq
        where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            and r.state = 'pending_redelivery';
        get diagnostics touched = row_count;
    end if;
    if touched > 0 or emptied or gone > 0 and (me.group_by is not null or me.max_unacknowledged is not null or exists (
        select from public.consumer_records r
        where r.consumer_id = me.id and r.action = 'truncate' and r.state <> 'dead'))
    then
        perform pipeline.wake_consumer(me.name);
    end if;
    if gone + touched > 0 and current_setting('synchronous_commit') = 'off' then
        perform pipeline.commit_durably();
    end if;
    return gone + touched;
end $$;
revoke execute on function pipeline.ack(consumer text, ack_ids uuid[]) from public;
