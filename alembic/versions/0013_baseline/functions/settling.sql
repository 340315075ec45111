-- A delivery is settled by its ack_id. An id that is late, or was never one, settles nothing.
-- `consumer_id + 0` and `is not null`: it is found by the index on ack_id, whatever statistics say of a queue.

create function pipeline.ack(consumer text, ack_ids uuid[]) returns integer
language plpgsql security definer set search_path = ''
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    gone integer;
    touched integer;
begin
    delete from public.consumer_records r
    where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id and r.state = 'delivered';
    get diagnostics gone = row_count;
    update public.consumer_records r
    set state = 'available', ack_id = null, visible_at = null, delivered_group = null, deliveries = 0,
        queued_seq = r.seq
    where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id and r.state = 'pending_redelivery';
    get diagnostics touched = row_count;
    if touched > 0 or gone > 0 and (me.group_by is not null or me.max_unacknowledged is not null or exists (
        select from public.consumer_records r
        where r.consumer_id = me.id and r.action = 'truncate' and r.state <> 'dead'))
    then
        perform pipeline.wake_consumer(me.name);
    end if;
    return gone + touched;
end $$;

create function pipeline.nack(consumer text, ack_ids uuid[], delay interval default null) returns integer
language plpgsql security definer set search_path = ''
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    held public.consumer_records[];
begin
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
    perform pipeline.bury(array_agg(i)) from unnest(held) i
    where i.state = 'delivered' and i.deliveries >= me.max_deliveries;
    perform pipeline.wake_consumer(me.name);
    return cardinality(held);
end $$;

create function pipeline.extend(consumer text, ack_ids uuid[], visibility interval) returns integer
language plpgsql security definer set search_path = ''
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
