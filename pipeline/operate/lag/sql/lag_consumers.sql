-- For each consumer, and the lake, the first event that it has still to take; of what a filter leaves out 20,000 are passed.
with head as (
    select coalesce((select seq from pipeline.events order by seq desc limit 1), 0) as seq
), waiting as (
    select c.name, c.kind, c.state = 'paused' as paused, c.reader is null as unread,
        case c.kind when 'cursor' then coalesce(wanted.seq, c.position + 20000) else least(
            (select min(r.queued_seq) from public.consumer_records r
             where r.consumer_id = c.id and r.state = 'available'),
            (select min(r.queued_seq) from public.consumer_records r
             where r.consumer_id = c.id and r.visible_at <= clock_timestamp()
                and r.state in ('delivered', 'pending_redelivery')),
            coalesce(p.folded_seq, c.position) + 1
        ) end as seq
    from pipeline.consumers c
    left join pipeline.consumer_progress p on p.consumer_id = c.id
    left join lateral (
        select e.seq from pipeline.events e
        where c.kind = 'cursor' and e.seq > c.position and e.seq < c.position + 20000
            and pipeline.matches(c.tables, e.source_table_schema, e.source_table_name)
            and (cardinality(c.actions) = 0 or e.action = any (c.actions))
        order by e.seq limit 1
    ) wanted on true
    union all
    select %(directory)s::text, 'lake', false, false, %(exported)s::bigint + 1 where %(exported)s::bigint is not null
)
select w.name, w.kind, w.paused, w.unread, h.seq - w.seq + 1 as seqs, first.commit_lsn, first.committed_at,
    first.source_epoch as epoch
from waiting w
cross join head h
cross join lateral (
    select e.commit_lsn, e.committed_at, e.source_epoch from pipeline.events e where e.seq >= w.seq order by e.seq limit 1
) first
where w.seq <= h.seq
