-- The newest backfills.
select b.id, b.source_id, b.epoch, b.table_oid, b.table_schema, b.table_name, b.kind, b.condition, b.state, b.reason,
    b.after_xid::text::bigint as after_xid, b.after_lsn, b.since_seqs, b.files, b.by_key, b.rows_estimated,
    b.bytes_estimated, b.ranges_all, b.ranges_done, b.rows_read, b.rows_added, b.events_table, b.first_seq, b.last_seq,
    b.gap_after, b.gap_until, b.told_seqs, b.floor_seqs, b.created_at, b.started_at, b.finished_at
from pipeline.backfills b
where b.source_id = %(source)s
order by b.id desc limit %(most)s
