-- Step 5: find the lines that each item waits in, and the item in front of it in each line. An item waits in the lines
-- of its row, of the old key of its row, and of its group. An item in front that is locked here cannot be settled
-- before this transaction ends; the session that settles it later finds the items behind it.
members as (
    select n.*, n.source_table_oid as line_oid, case when not n.is_alone then n.record_pk collate "C" end as line,
        false as of_group
    from named n
    union all
    select n.*, n.source_table_oid, n.left_pk collate "C", false from named n where n.left_pk is not null
    union all
    select n.*, 0, n.line_group collate "C", true from named n where n.line_group <> ''
), ranked as materialized (
    select m.*, m.is_queued or m.line is null
        or rank() over (partition by m.of_group, m.line_oid, m.line order by m.seq) = 1 as leads
    from members m
), known as materialized (
    -- The last item in front of it in each line, looked up by its key, whatever the queue's statistics say.
    -- `is_sure`: no other transaction can have settled that item. `hides_front`: receivers skip it while it is locked
    -- here.
    select m.*, front.unkeyed is not null as is_behind, front.unkeyed is null or own.is is true as is_sure,
        own.is is true and front.state = 'available' as hides_front
    from ranked m
    left join lateral (
        (select r.source_table_oid, r.record_pk, r.unkeyed, r.state from public.consumer_records r
        where m.leads and not m.of_group and r.consumer_id = %(consumer)s and r.source_table_oid = m.line_oid
            and r.record_pk = m.line and r.unkeyed > 0 and r.unkeyed < m.seq and not r.is_alone
        order by r.unkeyed desc limit 1)
        union all
        (select r.source_table_oid, r.record_pk, r.unkeyed, r.state from public.consumer_records r
        where m.leads and not m.of_group and r.consumer_id = %(consumer)s and r.source_table_oid = m.line_oid
            and r.left_pk = m.line and r.unkeyed > 0 and r.unkeyed < m.seq
        order by r.unkeyed desc limit 1)
        union all
        (select r.source_table_oid, r.record_pk, r.unkeyed, r.state from public.consumer_records r
        where m.leads and m.of_group and r.consumer_id = %(consumer)s and r.group_id = m.line_group and r.group_id <> ''
            and r.state <> 'dead' and r.queued_seq < m.seq
        order by r.queued_seq desc limit 1)
    ) front on true
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = front.source_table_oid
            and r.record_pk = front.record_pk and r.unkeyed = front.unkeyed
        -- Not `for key share`: it waits for a transaction that has changed and then deleted the item.
        for no key update skip locked
    ) own on true
), placed as materialized (
    select k.source_table_oid, k.record_pk, k.seq, min(k.commit_lsn) as commit_lsn, min(k.commit_idx) as commit_idx,
        min(k.action) as action, min(k.left_pk) as left_pk, min(k.line_group) as line_group,
        bool_and(k.is_alone) as is_alone, bool_and(k.leads and not k.is_behind) as is_first,
        bool_and(k.is_sure) as is_sure, bool_or(k.hides_front) as hides_front
    from known k
    group by k.source_table_oid, k.record_pk, k.seq
)
