-- A new backfill; no row if another one of the table is under way.
insert into pipeline.backfills (
    source_id, epoch, table_oid, table_schema, table_name, kind, condition, gap_after, gap_until, relations,
    bounds, told_seqs)
values (%(source)s, %(epoch)s, %(oid)s, %(schema)s, %(name)s, %(kind)s, %(condition)s, %(gap_after)s, %(gap_until)s,
    %(relations)s, %(bounds)s,
    case when %(kind)s = 'differences' then (
        select t.told_seqs from pipeline.snapshot_tables t where t.source_id = %(source)s and t.table_oid = %(oid)s) end)
on conflict (source_id, table_oid) where state in ('waiting', 'reading', 'paused') do nothing
returning id
