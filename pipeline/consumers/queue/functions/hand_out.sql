-- Deliver items to one receiver.
-- Items that are locked already are changed by `insert … on conflict do update`: each is found by its key, where a join
-- could be planned as a scan of the whole queue, whose statistics are always out of date.
create or replace function pipeline.hand_out(consumer pipeline.consumers, upto integer, visibility interval)
returns setof public.consumer_records
language plpgsql set search_path = ''
as $$
declare
    picked tid[];
    beginning bytea := substr(uuid_send(gen_random_uuid()), 1, 12);
begin
    select array_agg(p.row_id) into picked from (
        select r.row_id from pipeline.receivable r
        where r.consumer_id = hand_out.consumer.id
        order by r.queued_seq
        limit upto
        for update skip locked) p;
    -- Checked again on the locked rows: an item that the shuffler changed after the first statement began may have a new
    -- place, behind a truncate or in a group that the first statement could not see.
    return query
        update public.consumer_records r
        -- The ack_ids of one call are next to each other: their index takes them in less time than random ones.
        set state = 'delivered', ack_id = encode(beginning || int4send(p.number::integer), 'hex')::uuid,
            visible_at = clock_timestamp() + hand_out.visibility, deliveries = r.deliveries + 1,
            delivered_seq = r.seq, delivered_group = nullif(r.group_id, '')
        from unnest(picked) with ordinality p (row_id, number)
        where r.ctid = p.row_id and r.state = 'available'
            and not exists (
                select from public.consumer_records t
                where t.consumer_id = r.consumer_id and t.source_table_oid = r.source_table_oid
                    and t.action = 'truncate' and t.state <> 'dead' and t.seq < r.seq)
            and (r.is_alone is not null or r.group_id = '' or not exists (
                select from public.consumer_records o
                where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> ''
                    and o.state <> 'dead' and (o.queued_seq < r.queued_seq
                        or o.state <> 'available' and o.visible_at > clock_timestamp())))
        returning r.*;
end $$;
revoke execute on function pipeline.hand_out from public;
