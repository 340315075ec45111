-- Step 5: the lines that each item is in, of its row, of the key that its row has left, and of its group; and what is in
-- front of it there. Nobody settles what could be locked here before this transaction ends, and who does it then finds
-- the items behind it.
members as (
    select n.*, n.source_table_oid as line_oid, case when not n.is_alone then n.record_pk collate "C" end as line,
        false as of_group
    from named n
    union all
    select n.*, n.source_table_oid, n.left_pk collate "C", false from named n where n.left_pk is not null
    union all
    select n.*, 0, n.line_group collate "C", true from named n where n.line_group <> ''
), ranked as materialized (
    select m.*, m.is_there or m.line is null
        or rank() over (partition by m.of_group, m.line_oid, m.line order by m.seq) = 1 as leads
    from members m
), known as materialized (
    -- The last in front of it in each line. Each is looked up by itself, whatever the queue's statistics say.
    select m.*, ahead.unkeyed is not null as is_behind, ahead.unkeyed is null or ours.is is true as is_sure,
        ours.is is true and ahead.state = 'available' as is_kept
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
    ) ahead on true
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = ahead.source_table_oid
            and r.record_pk = ahead.record_pk and r.unkeyed = ahead.unkeyed
        -- Not for key share, which waits for who has changed and then deleted it in one transaction.
        for no key update skip locked
    ) ours on true
), placed as materialized (
    select k.source_table_oid, k.record_pk, k.seq, min(k.commit_lsn) as commit_lsn, min(k.commit_idx) as commit_idx,
        min(k.action) as action, min(k.left_pk) as left_pk, min(k.line_group) as line_group,
        bool_and(k.is_alone) as is_alone, bool_and(k.leads and not k.is_behind) as is_first,
        bool_and(k.is_sure) as is_sure, bool_or(k.is_kept) as is_kept
    from known k
    group by k.source_table_oid, k.record_pk, k.seq
)
