-- Step 5 of applying the log: write the items that no other transaction has locked, and defer the changes of the others.
-- Returns how many were written, the tables that were truncated, each with the seq of its truncate, and whether something
-- was odd, for which apply_plain.sql has no steps.
known as materialized (
    -- Each is looked up by itself, whatever the queue's statistics say. `is_ours`: we could lock it.
    select k.*, coalesce(there.is, false) as is_there, coalesce(ours.is, false) as is_ours,
        coalesce(k.known_group, there.group_id) as last_group
    from kept k
    left join lateral (
        select true as is, r.group_id from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid and r.record_pk = k.record_pk
            and r.unkeyed = k.unkeyed
        limit 1
    ) there on k.unkeyed = 0
    left join lateral (
        -- The condition is in here: otherwise what is not there is looked up twice.
        select true as is from public.consumer_records r
        where there.is and r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid
            and r.record_pk = k.record_pk and r.unkeyed = k.unkeyed
        for update skip locked
    ) ours on true
), written as (
    insert into public.consumer_records as r (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action, record, group_id)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.unkeyed, k.seq, k.first_seq, k.commit_lsn, k.commit_idx,
        k.action, k.record,
        case when %(group_by)s::text[] is null then '' else coalesce(k.last_group,
            k.source_table_oid || case when k.unkeyed = 0 then '/' || k.record_pk else '#' || k.unkeyed end) end
    from known k
    where k.is_ours or not k.is_there
    {change_item}
    returning 1
), spilled as (
    insert into pipeline.consumer_touches (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action, record, group_id)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.unkeyed, k.seq, k.first_seq, k.commit_lsn, k.commit_idx,
        k.action, k.record, k.known_group
    from known k
    where k.is_there and not k.is_ours
    on conflict do nothing
), merged as (
    delete from pipeline.consumer_touches t
    where t.consumer_id = %(consumer)s and (t.source_table_oid, t.record_pk, t.unkeyed, t.seq) not in (
        select k.source_table_oid, k.record_pk, k.unkeyed, k.seq from known k where k.is_there and not k.is_ours)
)
select (select count(*) from written),
    (select array_agg(t.source_table_oid order by t.source_table_oid) from emptied t),
    (select array_agg(t.seq order by t.source_table_oid) from emptied t),
    exists (select from keyed k where not k.has_pk or k.action = 'truncate')
        or exists (select from items i where i.record is not null) or exists (select from barriers)
