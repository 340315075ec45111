-- Find what the log lacks of tables: rows that existed before a table joined and were not read, and changes while the
-- table was left out.
select g.table_name as table, g.what, g.from_lsn, g.until_lsn, g.since, g.until
from (
    select c.table_name, c.id, 'rows' as what, null::bigint as from_lsn, c.joined_lsn as until_lsn,
        null::timestamptz as since, c.joined_at as until
    from pipeline.captured_tables c
    where c.source_id = %(source)s and c.was_empty is not true
        and not exists (select from pipeline.snapshot_tables t left join pipeline.backfills b on b.id = t.backfill_id
            where t.source_id = c.source_id and t.complete_seq is not null
                and (t.table_oid = c.table_oid or b.files ? c.table_oid::text))
        and not exists (select from pipeline.captured_tables earlier
            where earlier.source_id = c.source_id and earlier.table_oid = c.table_oid and earlier.id < c.id)
    union all
    select c.table_name, c.id, 'changes', c.left_lsn, later.joined_lsn, c.left_at, later.joined_at
    from pipeline.captured_tables c
    left join lateral (select n.joined_lsn, n.joined_at from pipeline.captured_tables n
        where n.source_id = c.source_id and n.table_oid = c.table_oid and n.id > c.id order by n.id limit 1) later on true
    where c.source_id = %(source)s and c.left_at is not null
) g
order by g.table_name, g.id, g.what desc
