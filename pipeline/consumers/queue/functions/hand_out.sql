-- Deliver items to one receiver.
-- Locked items are changed by `insert … on conflict do update`, which finds each by its key. Postgres could plan a join
-- as a scan of the complete queue, because the statistics of a queue are always out of date.
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
    -- The conditions are checked again on the locked rows. If the shuffler has changed an item since the first
    -- statement began, the item may be behind a truncate or in a group that the first statement could not see.
    return query
        update public.consumer_records r
        -- The ack_ids of one call are next to each other, because their index is then faster than with random ones.
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
