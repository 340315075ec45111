-- Make items available whose delivery has expired; items that were delivered max_deliveries times become dead letters.
-- Locked items are changed by `insert … on conflict do update`, which finds each by its key. Postgres could plan a join
-- as a scan of the complete queue, because the statistics of a queue are always out of date.
create or replace function pipeline.release_expired(consumer pipeline.consumers) returns void
language plpgsql set search_path = ''
as $$
declare
    expired public.consumer_records[];
    spent public.consumer_records[];
begin
    select array_agg(r) into expired from (
        select * from public.consumer_records r
        where r.consumer_id = consumer.id and r.visible_at <= clock_timestamp()
            and r.state in ('delivered', 'pending_redelivery')
        order by r.visible_at limit 1000
        for update skip locked) r;
    if expired is null then
        return;
    end if;
    select array_agg(i) into spent from unnest(expired) i
    where i.state = 'delivered' and i.deliveries >= consumer.max_deliveries;
    insert into public.consumer_records as r
    select i.* from unnest(expired) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'available', ack_id = null, visible_at = null, delivered_group = null,
        deliveries = case when r.state = 'pending_redelivery' then 0 else r.deliveries end;
    if spent is not null then
        perform pipeline.bury(spent);
        if not consumer.collapse then
            perform pipeline.move_up(spent);
        end if;
    end if;
end $$;
revoke execute on function pipeline.release_expired(consumer pipeline.consumers) from public;
