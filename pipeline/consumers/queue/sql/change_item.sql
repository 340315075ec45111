-- Change items already in the queue: the end of an `insert` of items that this transaction has locked. It uses `clock`.
on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
set seq = excluded.seq, commit_lsn = excluded.commit_lsn, commit_idx = excluded.commit_idx,
    action = excluded.action, record = excluded.record, event = null, group_id = excluded.group_id,
    -- An item in flight stays in flight, and is delivered again after its acknowledgement; others become available.
    (state, ack_id, visible_at, delivered_group, deliveries) = (
        select case when in_flight then 'pending_redelivery' else 'available' end,
            case when in_flight then r.ack_id end, case when in_flight then r.visible_at end,
            case when in_flight then r.delivered_group end, case when in_flight then r.deliveries else 0 end
        from (
            select r.state in ('delivered', 'pending_redelivery') and r.visible_at > c.now as in_flight from clock c
        ) now
    ),
    -- An item keeps its place in the queue, unless it was a dead letter or its earlier change is in flight.
    queued_seq = case
        when r.state = 'dead' or r.state = 'delivered' and r.visible_at > (select c.now from clock c)
            then excluded.queued_seq
        {across_truncate}
        else r.queued_seq end
