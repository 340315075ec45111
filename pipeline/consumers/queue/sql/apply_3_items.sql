-- Step 3 of applying the log: write the items. Changes of items that another transaction has locked are deferred.
-- Returns the number of written items, the truncated tables, the seqs of their truncates, and true if an event was odd,
-- so that apply_plain.sql cannot apply it.
items as materialized (
    -- The items that each event changes. An item has a `record` only if the log does not have its row under that key.
    -- First the row itself; a row without a key is a separate item for each event.
    select coalesce(k.root_oid, k.source_table_oid) as source_table_oid, k.record_pk,
        case when k.has_pk or cardinality(k.key_columns) > 0 and k.action <> 'truncate' then 0 else k.seq end as unkeyed,
        k.seq, k.seq as queued_seq, k.commit_lsn, k.commit_idx, k.action, null::jsonb as record, k.group_id,
        k.action = 'truncate' and k.source_table_oid = coalesce(k.root_oid, k.source_table_oid) as empties
    from keyed k
    where %(actions)s::text[] = '{{}}' or k.action = any (%(actions)s)
    union all
    -- An event that changes a row's key is also a delete under the old key.
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
    -- Changes that an earlier run deferred.
    select t.source_table_oid, t.record_pk, t.unkeyed, t.seq, t.queued_seq, t.commit_lsn, t.commit_idx, t.action,
        t.record, t.group_id, false
    from pipeline.consumer_touches t where t.consumer_id = %(consumer)s
), emptied as materialized (
    -- Each item takes its last change, unless its table was truncated later.
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
    -- Changes before the truncate of their table are dropped.
    select l.source_table_oid, l.record_pk, l.unkeyed, l.seq, l.commit_lsn, l.commit_idx, l.action, l.record,
        l.known_group,
        case when exists (select from barriers b where b.source_table_oid = l.source_table_oid
            and b.seq > l.first_seq and b.seq < l.seq) then l.seq else l.first_seq end as first_seq
    from latest l
    where not exists (select from emptied t where t.source_table_oid = l.source_table_oid and l.seq < t.seq)
), known as materialized (
    -- Each item is looked up by its key, whatever the queue's statistics say. `is_queued`: the queue has the item.
    -- `is_locked`: this transaction could lock it.
    select k.*, coalesce(queued.is, false) as is_queued, coalesce(own.is, false) as is_locked,
        coalesce(k.known_group, queued.group_id) as last_group
    from kept k
    left join lateral (
        select true as is, r.group_id from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid and r.record_pk = k.record_pk
            and r.unkeyed = k.unkeyed
        limit 1
    ) queued on k.unkeyed = 0
    left join lateral (
        -- `queued.is` is a condition here, so that an item that the queue does not have is looked up only once.
        select true as is from public.consumer_records r
        where queued.is and r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid
            and r.record_pk = k.record_pk and r.unkeyed = k.unkeyed
        for update skip locked
    ) own on true
), written as (
    insert into public.consumer_records as r (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action, record, group_id)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.unkeyed, k.seq, k.first_seq, k.commit_lsn, k.commit_idx,
        k.action, k.record,
        case when %(group_by)s::text[] is null then '' else coalesce(k.last_group,
            k.source_table_oid || case when k.unkeyed = 0 then '/' || k.record_pk else '#' || k.unkeyed end) end
    from known k
    where k.is_locked or not k.is_queued
    {change_item}
    returning 1
), spilled as (
    insert into pipeline.consumer_touches (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action, record, group_id)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.unkeyed, k.seq, k.first_seq, k.commit_lsn, k.commit_idx,
        k.action, k.record, k.known_group
    from known k
    where k.is_queued and not k.is_locked
    on conflict do nothing
), merged as (
    delete from pipeline.consumer_touches t
    where t.consumer_id = %(consumer)s and (t.source_table_oid, t.record_pk, t.unkeyed, t.seq) not in (
        select k.source_table_oid, k.record_pk, k.unkeyed, k.seq from known k where k.is_queued and not k.is_locked)
)
select (select count(*) from written),
    (select array_agg(t.source_table_oid order by t.source_table_oid) from emptied t),
    (select array_agg(t.seq order by t.source_table_oid) from emptied t),
    exists (select from keyed k where not k.has_pk or k.action = 'truncate')
        or exists (select from items i where i.record is not null) or exists (select from barriers)
