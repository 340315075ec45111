-- Which tables are complete in the log, for readers in SQL. A table whose partitions joined or left is incomplete until
-- that is settled; its stored state stays, so that followers do not start again.
create or replace view pipeline.snapshots as
select t.source_id, t.table_schema || '.' || t.table_name as "table", t.table_oid,
    case when t.complete_seq is not null and p.id is null then 'complete'
        when b.state in ('waiting', 'reading', 'paused', 'failed', 'cancelled') then b.state
        else 'not read' end as state,
    case when p.id is null then coalesce(b.reason, t.reason)
        else concat('partition ', p.leaf_name, ' ', case p.what
            when 'attached' then 'was attached with rows'
            when 'returned' then 'was detached and attached again'
            when 'detached' then 'was detached (alter table … detach partition), and the log still has its rows'
            when 'dropped' then 'was dropped (drop table), and the log still has its rows'
            when 'truncated' then 'was truncated (truncate), and the log still has its rows' end,
            case when p.others > 0 then format(', and %s more changes of partitions', p.others) end,
            case when b.state in ('waiting', 'reading', 'paused') then '; backfill ' || b.id
                    || case when b.kind = 'differences' then ' compares it' else ' reads it' end || coalesce(': ' || b.reason, '')
                when b.state in ('failed', 'cancelled') then format('; backfill %s is %s%s; ', b.id, b.state, ': ' || b.reason)
                when p.reason is not null then '; ' || p.reason || '; '
                when p.what in ('attached', 'returned') then '; its rows are about to be read'
                else '; ' end,
            case when (b.state is null or b.state in ('failed', 'cancelled'))
                    and (p.what not in ('attached', 'returned') or p.reason is not null or b.state is not null)
                then format('run `pipeline backfill start %1$s.%2$s --differences`, or keep the log as it is:'
                    ' `pipeline backfill settle %1$s.%2$s --keep`', t.table_schema, t.table_name) end) end as reason,
    b.id as backfill,
    coalesce(b.ranges_done, 0) as ranges_done, coalesce(b.ranges_all, 0) as ranges_all,
    coalesce(b.rows_added, 0) as rows, b.rows_estimated,
    coalesce(t.events_table, b.events_table) as events_table,
    coalesce(t.first_seq, b.first_seq) as first_seq,
    case when p.id is null then greatest(t.complete_seq, case when t.complete_seq is not null then (
        select max(s.settled_seq) from pipeline.partition_changes s
        where s.source_id = t.source_id and s.root_oid = t.table_oid) end) end as complete_seq,
    b.kind
from pipeline.snapshot_tables t
left join lateral (
    select c.id, c.leaf_name, c.what, c.reason, c.backfill_id, count(*) over () - 1 as others
    from pipeline.partition_changes c
    where c.source_id = t.source_id and c.root_oid = t.table_oid and c.settled_at is null and t.complete_seq is not null
    order by c.backfill_id is not null, c.id limit 1
) p on true
left join pipeline.backfills b on b.id = case when p.id is null then t.backfill_id else p.backfill_id end
where t.captured;

comment on view pipeline.snapshots is
    'Every captured table. From complete_seq on, folding the log gives the complete table.';
comment on column pipeline.snapshots.state is
    'complete, waiting (for older transactions), reading, paused, failed, cancelled, or not read.';
comment on column pipeline.snapshots.reason is
    'Why the table is not complete: what its backfill waits for, why it failed, why the table is not read, what could not be known, or which partition joined or left.';
comment on column pipeline.snapshots.rows is 'Rows that became events: all with action read, or in a comparison only what differed.';
comment on column pipeline.snapshots.first_seq is 'Seq of the first of those events; null: there is none.';
comment on column pipeline.snapshots.complete_seq is
    'From this seq on, folding the log gives the complete table; null: not yet, or no longer, because a partition joined or left.';
comment on column pipeline.snapshots.kind is
    'The kind of the backfill: initial, asked, or differences, which appends only what differs from the log.';
