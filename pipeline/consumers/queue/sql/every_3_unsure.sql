-- Step 3 of looking again, where each event is an item: those of which it was not known whether one is in front of them.
items as materialized (
    select r.source_table_oid, r.record_pk, r.seq, r.commit_lsn, r.commit_idx, r.action, r.left_pk, r.is_alone,
        r.group_id as line_group, true as is_there
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
