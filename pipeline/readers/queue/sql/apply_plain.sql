-- Apply events that have nothing odd: no truncate in them or in the queue, nothing deferred, a key each that has not changed.
-- Does what the five steps would, in less time. Returns how many items were written, and whether something was odd: then
-- nothing was.
with clock as materialized (
    select clock_timestamp() as now
), seen as materialized (
    select e.seq, e.commit_lsn, e.commit_idx, e.action, e.source_table_oid, e.record_pk collate "C" as record_pk,
        case when e.action = 'update' then e.changes end as changes
    from {events} e
    where e.seq > %(after)s and e.seq <= %(upto)s
        and (%(patterns)s::text[] = '{{}}' or e.source_table_schema || '.' || e.source_table_name like any (%(patterns)s)
            or e.action = 'truncate')
        and (%(actions)s::text[] = '{{}}' or e.action = any (%(actions)s)
            or e.action = 'update' and e.changes is not null and 'delete' = any (%(actions)s))
        and (e.metadata is null or not (
            e.metadata ? 'parked' and e.action in ('insert', 'update', 'read') or e.metadata ? 'outdated'))
), keys as materialized (
    -- All columns that were ever in the key of a table.
    select r.table_oid, array_agg(distinct c.name) as columns
    from pipeline.relations r cross join unnest(r.key_columns) c (name)
    where r.table_oid = any (array(select distinct s.source_table_oid from seen s where s.changes is not null))
    group by r.table_oid
), barriers as materialized (
    select r.source_table_oid, r.seq from public.consumer_records r
    where r.consumer_id = %(consumer)s and r.action = 'truncate' and r.state <> 'dead'
), odd as materialized (
    select exists (select from barriers)
        or exists (select from pipeline.consumer_touches t where t.consumer_id = %(consumer)s)
        or exists (select from seen s where s.record_pk = '' or s.action = 'truncate')
        or exists (
            select from seen s join keys k on k.table_oid = s.source_table_oid
            where s.changes is not null and s.changes ?| k.columns) as is
), latest as materialized (
    select distinct on (s.source_table_oid, s.record_pk) s.source_table_oid, s.record_pk, s.seq, s.commit_lsn,
        s.commit_idx, s.action, min(s.seq) over w as first_seq
    from seen s
    where not (select o.is from odd o) and (%(actions)s::text[] = '{{}}' or s.action = any (%(actions)s))
    window w as (partition by s.source_table_oid, s.record_pk order by s.seq desc
        rows between unbounded preceding and unbounded following)
    order by s.source_table_oid, s.record_pk, s.seq desc
), known as materialized (
    select l.*, coalesce(there.is, false) as is_there
    from latest l
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = l.source_table_oid and r.record_pk = l.record_pk
            and r.unkeyed = 0
        limit 1
    ) there on true
), locked as materialized (
    select k.*, coalesce(ours.is, false) as is_ours
    from known k
    left join lateral (
        select true as is from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid and r.record_pk = k.record_pk
            and r.unkeyed = 0
        for update skip locked
    ) ours on true
    where k.is_there
), added as (
    -- Nobody else adds items of this consumer, which is claimed: what is not there stays so.
    insert into public.consumer_records (consumer_id, source_table_oid, record_pk, seq, queued_seq, commit_lsn,
        commit_idx, action)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.seq, k.first_seq, k.commit_lsn, k.commit_idx, k.action
    from known k
    where not k.is_there
), written as (
    insert into public.consumer_records as r (consumer_id, source_table_oid, record_pk, seq, queued_seq, commit_lsn,
        commit_idx, action)
    select %(consumer)s, l.source_table_oid, l.record_pk, l.seq, l.first_seq, l.commit_lsn, l.commit_idx, l.action
    from locked l
    where l.is_ours
    {change_item}
), spilled as (
    insert into pipeline.consumer_touches (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action)
    select %(consumer)s, l.source_table_oid, l.record_pk, 0, l.seq, l.first_seq, l.commit_lsn, l.commit_idx, l.action
    from locked l
    where not l.is_ours
    on conflict do nothing
)
select (select count(*) from known k where not k.is_there) + (select count(*) from locked l where l.is_ours),
    (select o.is from odd o)
