-- Step 3 of settling unsure items, if each event is an item: find them. An item is unsure if another transaction had
-- locked the item in front of it, which may be deleted by now.
items as materialized (
    select r.source_table_oid, r.record_pk, r.seq, r.commit_lsn, r.commit_idx, r.action, r.left_pk, r.is_alone,
        r.group_id as line_group, true as is_queued
    from pipeline.consumer_touches t
    cross join lateral (
        select * from public.consumer_records r
        where r.consumer_id = t.consumer_id and r.source_table_oid = t.source_table_oid and r.record_pk = t.record_pk
            and r.unkeyed = t.unkeyed and r.state = 'blocked'
        limit 1
    ) r
    where t.consumer_id = %(consumer)s
), named as materialized (
    select i.* from items i
)
