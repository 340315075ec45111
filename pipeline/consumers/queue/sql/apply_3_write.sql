-- Step 3 of applying the log: write the items that no other transaction has locked, and defer the changes of the others.
-- Returns how many were written, the tables that were truncated, each with the seq of its truncate, and whether something
-- was odd, for which apply_plain.sql has no steps.
items as materialized (
    -- Which items each event changes, and how. An item's `record` is only set if its row is not in the log under
    -- that key.
    -- The row itself; a row without a key is a separate item for each event.
    select coalesce(k.root_oid, k.source_table_oid) as source_table_oid, k.record_pk,
        case when k.has_pk or cardinality(k.key_columns) > 0 and k.action <> 'truncate' then 0 else k.seq end as unkeyed,
        k.seq, k.seq as queued_seq, k.commit_lsn, k.commit_idx, k.action, null::jsonb as record, k.group_id,
        k.action = 'truncate' and k.source_table_oid = coalesce(k.root_oid, k.source_table_oid) as empties
    from keyed k
    where %(actions)s::text[] = '{{}}' or k.action = any (%(actions)s)
    union all
    -- A row whose key changed is a delete under the old key.
    select k.source_table_oid, old.record_pk, 0, k.seq, k.seq, k.commit_lsn, k.commit_idx, 'delete', old.record,
        ({old_group}) as group_id, false
    from keyed k
    cross join lateral (
        select e.record || k.changes as record from {events} e
        where e.seq = k.seq and k.changes ?| k.key_columns limit 1
    ) was
    cross join lateral ({old_key}) old
    where old.record_pk <> k.record_pk and (%(actions)s::text[] = '{{}}' or 'delete' = any (%(actions)s))
    union all
    -- Changes that an earlier run had to defer.
    select t.source_table_oid, t.record_pk, t.unkeyed, t.seq, t.queued_seq, t.commit_lsn, t.commit_idx, t.action,
        t.record, t.group_id, false
    from pipeline.consumer_touches t where t.consumer_id = %(consumer)s
), emptied as materialized (
    -- The last change of each item counts, unless its table was truncated since.
    select i.source_table_oid, max(i.seq) as seq from items i where i.empties group by i.source_table_oid
), latest as (
    select distinct on (i.source_table_oid, i.record_pk, i.unkeyed) i.*, min(i.queued_seq) over w as first_seq,
        {known_group} as known_group
    from items i
    window w as (partition by i.source_table_oid, i.record_pk, i.unkeyed order by i.seq desc
        rows between unbounded preceding and unbounded following)
    order by i.source_table_oid, i.record_pk, i.unkeyed, i.seq desc
), barriers as materialized (
    select i.source_table_oid, i.seq from items i where i.action = 'truncate'
    union all
    select r.source_table_oid, r.seq from public.consumer_records r
    where r.consumer_id = %(consumer)s and r.action = 'truncate' and r.state <> 'dead'
), kept as materialized (
    -- Changes from before their table was truncated are dropped.
    select l.source_table_oid, l.record_pk, l.unkeyed, l.seq, l.commit_lsn, l.commit_idx, l.action, l.record,
        l.known_group,
        case when exists (select from barriers b where b.source_table_oid = l.source_table_oid
            and b.seq > l.first_seq and b.seq < l.seq) then l.seq else l.first_seq end as first_seq
    from latest l
    where not exists (select from emptied t where t.source_table_oid = l.source_table_oid and l.seq < t.seq)
), known as materialized (
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
