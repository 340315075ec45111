-- The status of each consumer, or of the named one. Counts stop at 100 000, so that the query is fast however large the
-- lag is.
with head as (
    select coalesce((select seq from pipeline.events order by seq desc limit 1), 0) as seq
)
select c.id, c.name, c.kind, c.tables, c.actions, c.state, c.events_table, c.group_by, c.collapse,
    extract(epoch from c.visibility)::float8 as visibility, c.max_deliveries, c.max_unacknowledged,
    case when c.events_table is not null then coalesce((
        select r.events_table = c.events_table
            or r.routes @> jsonb_build_array(jsonb_build_object('events_table', c.events_table))
        from pipeline.routes r order by r.id desc limit 1
    ), false) end as routed,
    c.position, c.reader, c.reader_since, c.created_at, c.updated_at,
    waits.count + blocked.count + expired.count as pending, out.count as in_flight, dead.count as dead,
    round(extract(epoch from clock_timestamp() - oldest.inserted_at), 3)::float8 as oldest_pending_seconds,
    pipeline.seqs_between(c.events_table,
        case c.kind when 'cursor' then c.position else coalesce(p.folded_seq, c.position) end,
        case when c.events_table is null then head.seq else pipeline.log_head(c.events_table) end) as lag
from pipeline.consumers c
cross join head
left join pipeline.consumer_progress p on p.consumer_id = pipeline.progress_id(c)
left join lateral (
    select count(*) from (
        select from public.consumer_records r where r.consumer_id = c.id and r.state = 'available' limit 100000
    ) as found
) waits on c.kind = 'records'
left join lateral (
    select count(*) from (
        select from public.consumer_records r where r.consumer_id = c.id and r.state = 'blocked' limit 100000
    ) as found
) blocked on c.kind = 'records'
left join lateral (
    select count(*), min(found.queued_seq) as queued_seq from (
        select r.queued_seq from public.consumer_records r
        where r.consumer_id = c.id and r.visible_at <= clock_timestamp() and r.state in ('delivered', 'pending_redelivery')
        limit 100000
    ) as found
) expired on c.kind = 'records'
left join lateral (
    select count(*) from (
        select from public.consumer_records r
        where r.consumer_id = c.id and r.visible_at > clock_timestamp() and r.state in ('delivered', 'pending_redelivery')
        limit 100000
    ) as found
) out on c.kind = 'records'
left join lateral (
    select count(*) from (
        select from public.consumer_records r where r.consumer_id = c.id and r.state = 'dead' limit 100000
    ) as found
) dead on c.kind = 'records'
left join lateral (
    select r.queued_seq from public.consumer_records r
    where r.consumer_id = c.id and r.state = 'available' order by r.queued_seq limit 1
) first on c.kind = 'records'
left join lateral (
    select r.queued_seq from public.consumer_records r
    where r.consumer_id = c.id and r.state = 'blocked' order by r.queued_seq limit 1
) behind on c.kind = 'records'
cross join lateral (
    select case c.kind when 'cursor' then c.position + 1
        else least(first.queued_seq, behind.queued_seq, expired.queued_seq) end as seq
) next
left join lateral (
    (select e.inserted_at from pipeline.events e where c.events_table is null and e.seq >= next.seq order by e.seq limit 1)
    union all
    select pipeline.inserted_at(c.events_table, next.seq) where c.events_table is not null
) oldest on true
where %(name)s::text is null or c.name = %(name)s
order by c.name
