-- The registry of readers: how far each one is, and what it still needs. The one file that names the tables of all kinds.
create or replace view pipeline.readers as
with log as (
    -- The table that pipeline.events shows; no row when it shows none.
    select n.nspname || '.' || t.relname as name
    from pg_catalog.pg_rewrite w
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid <> w.ev_class
    join pg_catalog.pg_class t on t.oid = d.refobjid
    join pg_catalog.pg_namespace n on n.oid = t.relnamespace
    where w.ev_class = 'pipeline.events'::regclass
    limit 1
), consumers as (
    select c.*, coalesce(c.events_table, (select name from log)) as of_table, pipeline.progress_id(c) as progress_id,
        case when c.events_table is not null and c.kind = 'cursor' then pipeline.passed_upto(c) end as passed_upto,
        case when c.state = 'paused' then 'resume it, or '
        else 'let it acknowledge what it has read, or ' end
        || '`pipeline consumers reset ' || c.name || '` or `pipeline consumers delete ' || c.name || '`' as remedy
    from pipeline.consumers c
)
select 'consumer' as kind, c.name, c.of_table as events_table,
    (select t.source_id from pipeline.events_tables t where t.name = c.of_table limit 1) as source,
    -- Events that its filter leaves out count as read, among the next 20,000 seqs.
    coalesce(c.passed_upto, (
        select e.seq - 1 from pipeline.events e
        where e.seq > c.position and e.seq < c.position + 20000
            and pipeline.matches(c.tables, e.source_table_schema, e.source_table_name)
            and (cardinality(c.actions) = 0 or e.action = any (c.actions))
        order by e.seq limit 1
    ), greatest(c.position, pipeline.before_jump(c.of_table, least(
        c.position + 19999, (select e.seq from pipeline.events e order by e.seq desc limit 1)
    )))) as position,
    c.position as needs_after, c.reader is not null as active, c.state = 'paused' as paused, c.remedy
from consumers c
where c.kind = 'cursor'
union all
select 'consumer', c.name, c.of_table,
    (select t.source_id from pipeline.events_tables t where t.name = c.of_table limit 1),
    -- Up to the first item that may be received now.
    least(
        (select min(r.queued_seq) - 1 from public.consumer_records r
         where r.consumer_id = c.id and r.state = 'available'),
        (select min(r.queued_seq) - 1 from public.consumer_records r
         where r.consumer_id = c.id and r.visible_at <= statement_timestamp()
            and r.state in ('delivered', 'pending_redelivery')),
        coalesce(p.folded_seq, c.position)
    ),
    -- Items refer to the log, unless they hold their event.
    least(
        coalesce(p.folded_seq, c.position),
        (select min(r.seq) - 1 from public.consumer_records r
         where c.collapse and r.consumer_id = c.id and r.event is null),
        -- If each event is an item there may be many: the oldest by the order of the queue, and the oldest in flight.
        (select r.seq - 1 from public.consumer_records r
         where not c.collapse and r.consumer_id = c.id and r.state = 'available' and r.event is null
         order by r.queued_seq limit 1),
        (select r.seq - 1 from public.consumer_records r
         where not c.collapse and r.consumer_id = c.id and r.state = 'blocked' and r.event is null
         order by r.queued_seq limit 1),
        (select min(r.seq) - 1 from public.consumer_records r
         where not c.collapse and r.consumer_id = c.id and r.visible_at is not null and r.event is null),
        (select min(t.seq) - 1 from pipeline.consumer_touches t where t.consumer_id = c.id)
    ),
    case when exists (
        select from public.consumer_records r
        where r.consumer_id = c.id and r.visible_at > statement_timestamp() and r.state = 'delivered'
    ) then true end,
    c.state = 'paused', c.remedy
from consumers c
left join pipeline.consumer_progress p on p.consumer_id = c.progress_id
where c.kind = 'records'
union all
select 'lake', l.directory, l.events_table,
    (select t.source_id from pipeline.events_tables t where t.name = l.events_table limit 1),
    has.upto,
    -- A lake that was released needs nothing until it is exported to again.
    case when l.released_at is null or l.released_at < (
        select e.committed_at from pipeline.exports e where e.lake_id = l.id and e.state = 'committed'
        order by e.upto_seq desc limit 1
    ) then has.upto end,
    exists (
        select from pipeline.advisory_locks k where k.key = hashtextextended('pipeline lake ' || l.id::text, 0)
    ),
    false,
    'see why with `pipeline export list`, or do without: `pipeline retention --release-lake ' || l.directory || '`'
from pipeline.lakes l
cross join lateral (
    -- A lake that holds nothing begins with the oldest event that is kept.
    select coalesce(
        (select max(e.upto_seq) from pipeline.exports e where e.lake_id = l.id and e.state = 'committed'),
        (select r.dropped_below - 1 from pipeline.retention r where r.events_table = l.events_table),
        0
    ) as upto
) has
union all
-- A backfill finds the rows that it must leave out among the events since it began.
select 'backfill', b.table_schema || '.' || b.table_name, s.key, b.source_id, null, s.value::bigint, true,
    b.state = 'paused', 'let it end, or `pipeline backfill cancel ' || b.id || '`'
from pipeline.backfills b cross join lateral jsonb_each_text(b.since_seqs) s
where b.state in ('waiting', 'reading', 'paused')
union all
select 'follower', f.name, (select name from log), f.source_id, f.seq, f.seq,
    case when f.wanted = 'paused' then false end, f.wanted = 'paused',
    case when f.wanted = 'paused' then '`pipeline followers resume ' || f.name || '`'
        else 'see why with `pipeline followers show ' || f.name || '`' end
        || ', or do without: `pipeline followers remove ' || f.name || '`'
from pipeline.followers f;

comment on view pipeline.readers is
    'The registry: every reader of an events table. Retention does not wait for others.';
comment on column pipeline.readers.events_table is 'The events table that it reads; null: the default table, which does not exist yet.';
comment on column pipeline.readers.position is
    'It has read everything up to this seq; null: it does not read in order.';
comment on column pipeline.readers.needs_after is 'It needs every event with a larger seq; null: it needs none.';
comment on column pipeline.readers.active is 'True if a client reads for it now; null: unknown.';
comment on column pipeline.readers.paused is 'True if it is paused.';
comment on column pipeline.readers.remedy is 'What to do when it keeps retention from dropping events.';
