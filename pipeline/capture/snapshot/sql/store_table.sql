-- A table is captured from now on, or again, or in another epoch. One that had no rows is whole from here on.
insert into pipeline.snapshot_tables (
    source_id, table_oid, epoch, table_schema, table_name, joined, keyed, reason, events_table, complete_seq,
    since_seqs)
values (%(source)s, %(oid)s, %(epoch)s, %(schema)s, %(name)s, %(joined)s, %(keyed)s, %(reason)s,
    case when %(complete)s then %(events_table)s end,
    case when %(complete)s then coalesce((select max(t.last_seq) from pipeline.events_tables t
        where t.source_id = %(source)s and t.name = %(events_table)s), 0) end,
    (select coalesce(jsonb_object_agg(t.name, coalesce(t.last_seq, 0)), '{}') from pipeline.events_tables t
        where t.source_id = %(source)s))
on conflict (source_id, table_oid) do update
set epoch = excluded.epoch, table_schema = excluded.table_schema, table_name = excluded.table_name,
    joined = excluded.joined, keyed = excluded.keyed, captured = true, backfill_id = null, reason = excluded.reason,
    events_table = excluded.events_table, first_seq = null, complete_seq = excluded.complete_seq,
    since_seqs = excluded.since_seqs,
    whole_from = case when snapshot_tables.epoch = excluded.epoch then null
        when snapshot_tables.complete_seq is not null then snapshot_tables.since_seqs
        else snapshot_tables.whole_from end
