-- Items that may be delivered now. Each is delivered to one receiver, under a new ack_id, for a limited time.
create or replace view pipeline.receivable as
select r.*, r.ctid as row_id from public.consumer_records r
where r.state = 'available' and (r.visible_at is null or r.visible_at <= clock_timestamp())
    -- A truncate waits for earlier items of its table, and later items wait for the truncate.
    and not exists (
        select from public.consumer_records t
        where t.consumer_id = r.consumer_id and t.source_table_oid = r.source_table_oid
            and t.action = 'truncate' and t.state <> 'dead' and t.seq < r.seq)
    and (r.action <> 'truncate' or not exists (
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid and o.state <> 'dead'
            -- A dead letter that was put back waits for later items.
            and not (o.state = 'blocked' and o.event is not null)
            and (o.seq < r.seq or o.delivered_seq < r.seq and o.visible_at > clock_timestamp()
                and o.state <> 'available')
        union all
        select from pipeline.consumer_touches o
        where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid and o.seq < r.seq))
    -- One item of a group is in flight at a time, in order. If each event is an item, the other items are blocked.
    and (r.is_alone is not null or r.group_id = '' or not exists (
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> '' and o.state <> 'dead'
            and (o.queued_seq < r.queued_seq
                or o.queued_seq = r.queued_seq and (o.record is null, o.record_pk) < (r.record is null, r.record_pk)
                or o.state <> 'available' and o.visible_at > clock_timestamp())
        union all
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.delivered_group = r.group_id and o.visible_at > clock_timestamp()
        union all
        select from pipeline.consumer_touches o
        where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.queued_seq < r.queued_seq));
comment on view pipeline.receivable is 'Items that can be delivered now.';
