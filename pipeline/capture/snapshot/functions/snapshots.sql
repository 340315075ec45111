-- Which tables the log has whole, for readers in SQL.
create or replace view pipeline.snapshots as
select t.source_id, t.table_schema || '.' || t.table_name as "table", t.table_oid,
    case when t.complete_seq is not null then 'complete'
        when b.state in ('waiting', 'reading', 'paused', 'failed', 'cancelled') then b.state
        else 'not read' end as state,
    coalesce(b.reason, t.reason) as reason, b.id as backfill,
    coalesce(b.ranges_done, 0) as ranges_done, coalesce(b.ranges_all, 0) as ranges_all,
    coalesce(b.rows_added, 0) as rows, b.rows_estimated,
    coalesce(t.events_table, b.events_table) as events_table,
    coalesce(t.first_seq, b.first_seq) as first_seq, t.complete_seq, b.kind
from pipeline.snapshot_tables t left join pipeline.backfills b on b.id = t.backfill_id
where t.captured;

comment on view pipeline.snapshots is
    'Every captured table, and from which seq on folding the log gives the whole of it: from complete_seq on.';
comment on column pipeline.snapshots.state is
    'complete, waiting (for older transactions), reading, paused, failed, cancelled, or not read.';
comment on column pipeline.snapshots.reason is 'What it waits for, why it failed, why it is not read, or what could not be known.';
comment on column pipeline.snapshots.rows is 'Rows that became events: all with action read, or in a comparison only what differed.';
comment on column pipeline.snapshots.first_seq is 'Seq of the first of those events; null: there is none.';
comment on column pipeline.snapshots.complete_seq is
    'From here on, folding the log gives the whole table; null: not yet, and the log has only the rows that it names.';
comment on column pipeline.snapshots.kind is
    'Of the backfill: initial, asked, or differences, which appends only what differs from the log.';
