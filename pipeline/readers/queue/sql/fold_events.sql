-- Events after one seq up to another change the items of a consumer; the last event of each row decides.
with clock as materialized (
    select clock_timestamp() as now
), seen as materialized (
    select e.seq, e.source_database_id, e.source_epoch, e.commit_lsn, e.commit_idx, e.action,
        e.source_table_oid, e.record_pk, e.record_pk <> '' as has_pk,
        case when e.action = 'update' then e.changes end as changes,
        case when %(group_by)s::text[] is not null and e.record ?& %(group_by)s then (
            select jsonb_agg(e.record -> c order by n)::text from unnest(%(group_by)s) with ordinality g (c, n)
        ) end as group_id,
        root.table_oid as root_oid
    from {events} e
    left join lateral (
        -- A truncate names the leaf of a partitioned table; its rows are the root's.
        select r.table_oid, r.table_schema, r.table_name from pipeline.relations r
        where e.action = 'truncate' and r.source_id = e.source_database_id and r.epoch = e.source_epoch
            and r.relation_oid = e.source_table_oid
        order by r.id desc limit 1
    ) root on true
    where e.seq > %(after)s and e.seq <= %(upto)s
        and (%(patterns)s::text[] = '{{}}' or e.source_table_schema || '.' || e.source_table_name like any (%(patterns)s)
            or root.table_schema || '.' || root.table_name like any (%(patterns)s))
        and (%(actions)s::text[] = '{{}}' or e.action = any (%(actions)s)
            or e.action = 'update' and e.changes is not null and 'delete' = any (%(actions)s))
        -- What only holds a place says nothing of the row; what was retried too late says nothing new.
        and (e.metadata is null or not (
            e.metadata ? 'parked' and e.action in ('insert', 'update') or e.metadata ? 'outdated'))
), forms as materialized (
    -- What was the key of a table, from where to where.
    select r.source_id, r.epoch, r.table_oid, r.key_columns, r.columns, r.from_lsn, r.from_idx,
        lead(r.from_lsn) over w as until_lsn, lead(r.from_idx) over w as until_idx
    from pipeline.relations r
    where r.table_oid = any (array(
        select distinct s.source_table_oid from seen s where s.changes is not null or not s.has_pk))
    window w as (partition by r.source_id, r.epoch, r.table_oid order by r.from_lsn, r.from_idx, r.id)
), keyed as materialized (
    select s.*, f.key_columns, f.columns
    from seen s
    left join forms f on (s.changes is not null or not s.has_pk)
        and f.source_id = s.source_database_id and f.epoch = s.source_epoch and f.table_oid = s.source_table_oid
        and (s.commit_lsn, s.commit_idx) >= (f.from_lsn, f.from_idx)
        and (f.until_lsn is null or (s.commit_lsn, s.commit_idx) < (f.until_lsn, f.until_idx))
), items as materialized (
    select coalesce(k.root_oid, k.source_table_oid) as source_table_oid, k.record_pk,
        case when k.has_pk or cardinality(k.key_columns) > 0 and k.action <> 'truncate' then 0 else k.seq end as unkeyed,
        k.seq, k.seq as queued_seq, k.commit_lsn, k.commit_idx, k.action, null::jsonb as record, k.group_id,
        k.action = 'truncate' and k.source_table_oid = coalesce(k.root_oid, k.source_table_oid) as empties
    from keyed k
    where %(actions)s::text[] = '{{}}' or k.action = any (%(actions)s)
    union all
    -- A row that changed its key has left the old one.
    select k.source_table_oid, old.record_pk, 0, k.seq, k.seq, k.commit_lsn, k.commit_idx, 'delete', old.record,
        old.group_id, false
    from keyed k
    cross join lateral (
        select e.record || k.changes as record from {events} e
        where e.seq = k.seq and k.changes ?| k.key_columns limit 1
    ) was
    cross join lateral (
        select (case when count(*) = 1 then min(part.plain) else '[' || string_agg(part.json, ',' order by n) || ']' end)
                collate "C" as key,
            jsonb_object_agg(name, was.record -> name) as record,
            case when %(group_by)s::text[] is not null and was.record ?& %(group_by)s then (
                select jsonb_agg(was.record -> c order by o)::text from unnest(%(group_by)s) with ordinality g (c, o)
            ) end as group_id
        from unnest(k.key_columns) with ordinality key (name, n)
        cross join lateral (
            select (c ->> 'base_type_oid')::bigint as type_oid from jsonb_array_elements(k.columns) c
            where c ->> 'name' = name limit 1
        ) typed
        cross join lateral (
            -- As record_pk is written: jsonb spells exponents out, and booleans.
            select case
                    when jsonb_typeof(was.record -> name) = 'number' and type_oid = 700
                        then (was.record ->> name)::float4::text
                    when jsonb_typeof(was.record -> name) = 'number' and type_oid = 701
                        then (was.record ->> name)::float8::text
                    else (was.record -> name)::text end as json,
                case
                    when jsonb_typeof(was.record -> name) = 'number' and type_oid = 700
                        then (was.record ->> name)::float4::text
                    when jsonb_typeof(was.record -> name) = 'number' and type_oid = 701
                        then (was.record ->> name)::float8::text
                    when type_oid = 16 then left(was.record ->> name, 1)
                    when type_oid = 3802 then (was.record -> name)::text
                    else was.record ->> name end as plain
        ) part
    ) whole
    cross join lateral (
        -- As record_pk is written: of a long key the digest.
        select whole.record, whole.group_id, (case when octet_length(whole.key) > 2000
            then 'sha256:' || encode(sha256(convert_to(whole.key, 'UTF8')), 'hex') else whole.key end) collate "C" as record_pk
    ) old
    where old.record_pk <> k.record_pk and (%(actions)s::text[] = '{{}}' or 'delete' = any (%(actions)s))
    union all
    select t.source_table_oid, t.record_pk, t.unkeyed, t.seq, t.queued_seq, t.commit_lsn, t.commit_idx, t.action,
        t.record, t.group_id, false
    from pipeline.consumer_touches t where t.consumer_id = %(consumer)s
), emptied as materialized (
    select i.source_table_oid, max(i.seq) as seq from items i where i.empties group by i.source_table_oid
), latest as (
    select distinct on (i.source_table_oid, i.record_pk, i.unkeyed) i.*, min(i.queued_seq) over w as first_seq,
        (array_agg(i.group_id) filter (where i.group_id is not null) over w)[1] as known_group
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
    -- What came before its table was emptied is nobody's any more.
    select l.source_table_oid, l.record_pk, l.unkeyed, l.seq, l.commit_lsn, l.commit_idx, l.action, l.record,
        l.known_group,
        case when exists (select from barriers b where b.source_table_oid = l.source_table_oid
            and b.seq > l.first_seq and b.seq < l.seq) then l.seq else l.first_seq end as first_seq
    from latest l
    where not exists (select from emptied t where t.source_table_oid = l.source_table_oid and l.seq < t.seq)
), known as materialized (
    -- Each is looked up by itself, whatever the planner thinks of a queue. What others hold is there, but not ours.
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
        select true as is from public.consumer_records r
        where r.consumer_id = %(consumer)s and r.source_table_oid = k.source_table_oid and r.record_pk = k.record_pk
            and r.unkeyed = k.unkeyed
        for update skip locked
    ) ours on there.is
), written as (
    insert into public.consumer_records as r (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq,
        commit_lsn, commit_idx, action, record, group_id)
    select %(consumer)s, k.source_table_oid, k.record_pk, k.unkeyed, k.seq, k.first_seq, k.commit_lsn, k.commit_idx,
        k.action, k.record,
        case when %(group_by)s::text[] is null then '' else coalesce(k.last_group,
            k.source_table_oid || case when k.unkeyed = 0 then '/' || k.record_pk else '#' || k.unkeyed end) end
    from known k
    where k.is_ours or not k.is_there
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set seq = excluded.seq, commit_lsn = excluded.commit_lsn, commit_idx = excluded.commit_idx,
        action = excluded.action, record = excluded.record, event = null, group_id = excluded.group_id,
        -- Who has it out keeps it, and hears of the change when it is settled; all others begin afresh.
        (state, ack_id, visible_at, delivered_group, deliveries) = (
            select case when out then 'pending_redelivery' else 'available' end, case when out then r.ack_id end,
                case when out then r.visible_at end, case when out then r.delivered_group end,
                case when out then r.deliveries else 0 end
            from (
                select r.state in ('delivered', 'pending_redelivery') and r.visible_at > c.now as out from clock c
            ) now
        ),
        -- Its place in the queue stays; but not across a truncate, which waits for what is before it.
        queued_seq = case
            when r.state = 'dead' or r.state = 'delivered' and r.visible_at > (select c.now from clock c)
                then excluded.queued_seq
            when exists (select from barriers b where b.source_table_oid = r.source_table_oid
                and b.seq > r.queued_seq and b.seq < excluded.seq) then excluded.seq
            else r.queued_seq end
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
    (select array_agg(t.seq order by t.source_table_oid) from emptied t)
