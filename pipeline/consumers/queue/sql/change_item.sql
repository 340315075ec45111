-- How an item takes a later change: the end of an `insert` of items that we have locked, which has `clock`.
on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
set seq = excluded.seq, commit_lsn = excluded.commit_lsn, commit_idx = excluded.commit_idx,
    action = excluded.action, record = excluded.record, event = null, group_id = excluded.group_id,
    -- An item that is delivered now stays so, and is delivered again once acknowledged; all others become available.
    (state, ack_id, visible_at, delivered_group, deliveries) = (
        select case when out then 'pending_redelivery' else 'available' end, case when out then r.ack_id end,
            case when out then r.visible_at end, case when out then r.delivered_group end,
            case when out then r.deliveries else 0 end
        from (
            select r.state in ('delivered', 'pending_redelivery') and r.visible_at > c.now as out from clock c
        ) now
    ),
    -- An item keeps its place in the queue.
    queued_seq = case
        when r.state = 'dead' or r.state = 'delivered' and r.visible_at > (select c.now from clock c)
            then excluded.queued_seq
        {across_truncate}
        else r.queued_seq end
