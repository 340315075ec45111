-- Apply a chunk of events for several consumers at the same position; it reads the events only once for all of them.
-- A consumer is skipped if the chunk is odd for it: the chunk or the queue has a truncate, changes are deferred, a key
-- has changed, or a row has no key. The result is that of the three steps `apply_1_events` to `apply_3_items`.
-- Returns the ids of consumers that have new items, and of those that were skipped.
with clock as materialized (
    select clock_timestamp() as now
), filters as materialized (
    select row_number() over () as number, f.consumers, f.patterns, f.actions,
        f.patterns = '{{}}' as any_table, f.actions = '{{}}' as any_action
    from jsonb_to_recordset(%(filters)s) f (consumers integer[], patterns text[], actions text[])
), seen as materialized (
    select f.number as filter_number, e.seq, e.commit_lsn, e.commit_idx, e.action, e.source_table_oid,
        e.record_pk collate "C" as record_pk, case when e.action = 'update' then e.changes end as changes,
        f.any_action or e.action = any (f.actions) as is_wanted
    from {events} e cross join filters f
    where e.seq > %(after)s and e.seq <= %(upto)s
        and (f.any_table or e.source_table_schema || '.' || e.source_table_name like any (f.patterns)
            or e.action = 'truncate')
        and (f.any_action or e.action = any (f.actions)
            or e.action = 'update' and e.changes is not null and 'delete' = any (f.actions))
        and (e.metadata is null or not (
            e.metadata ? 'parked' and e.action in ('insert', 'update', 'read') or e.metadata ? 'outdated'))
), keys as materialized (
    -- All columns that were ever in the key of a table.
    select r.table_oid, array_agg(distinct c.name) as columns
    from pipeline.relations r cross join unnest(r.key_columns) c (name)
    where r.table_oid = any (array(select distinct s.source_table_oid from seen s where s.changes is not null))
    group by r.table_oid
), odd as materialized (
    select s.filter_number from seen s where s.record_pk = '' or s.action = 'truncate'
    union
    select s.filter_number from seen s join keys k on k.table_oid = s.source_table_oid
    where s.changes is not null and s.changes ?| k.columns
), plain as materialized (
    select c.id, f.number as filter_number
    from filters f cross join unnest(f.consumers) c (id)
    where not exists (select from odd o where o.filter_number = f.number)
        and not exists (
            select from public.consumer_records r
            where r.consumer_id = c.id and r.action = 'truncate' and r.state <> 'dead')
        and not exists (select from pipeline.consumer_touches t where t.consumer_id = c.id)
), latest as materialized (
    select distinct on (s.record_pk, s.source_table_oid, s.filter_number) s.filter_number, s.source_table_oid,
        s.record_pk, s.seq, s.commit_lsn, s.commit_idx, s.action, min(s.seq) over w as first_seq
    from seen s
    where s.is_wanted
    window w as (partition by s.record_pk, s.source_table_oid, s.filter_number order by s.seq desc
        rows between unbounded preceding and unbounded following)
    order by s.record_pk, s.source_table_oid, s.filter_number, s.seq desc
), known as materialized (
    select p.id as consumer_id, l.*, coalesce(queued.is, false) as is_queued
    from plain p
    -- `offset 0` makes Postgres process one consumer after the other.
    cross join lateral (select * from latest l where l.filter_number = p.filter_number offset 0) l
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = p.id and r.source_table_oid = l.source_table_oid and r.record_pk = l.record_pk
            and r.unkeyed = 0
        limit 1
    ) queued on true
), locked as materialized (
    select k.*, coalesce(own.is, false) as is_locked
    from known k
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = k.consumer_id and r.source_table_oid = k.source_table_oid and r.record_pk = k.record_pk
            and r.unkeyed = 0
        for update skip locked
    ) own on true
    where k.is_queued
), added as (
    -- Only this transaction adds items of these consumers, because it has claimed them.
    insert into public.consumer_records (consumer_id, source_table_oid, record_pk, seq, queued_seq, commit_lsn,
        commit_idx, action)
    select k.consumer_id, k.source_table_oid, k.record_pk, k.seq, k.first_seq, k.commit_lsn, k.commit_idx, k.action
    from known k
    where not k.is_queued
), written as (
    insert into public.consumer_records as r (consumer_id, source_table_oid, record_pk, seq, queued_seq, commit_lsn,
        commit_idx, action)
    select l.consumer_id, l.source_table_oid, l.record_pk, l.seq, l.first_seq, l.commit_lsn, l.commit_idx, l.action
    from locked l
    where l.is_locked
    {change_item}
), spilled as (
    insert into pipeline.consumer_touches (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action)
    select l.consumer_id, l.source_table_oid, l.record_pk, 0, l.seq, l.first_seq, l.commit_lsn, l.commit_idx, l.action
    from locked l
    where not l.is_locked
    on conflict do nothing
)
select array(
        select p.id from plain p
        where exists (select from latest l where l.filter_number = p.filter_number) order by p.id),
    array(
        select c.id from filters f cross join unnest(f.consumers) c (id)
        where c.id not in (select p.id from plain p) order by c.id)
