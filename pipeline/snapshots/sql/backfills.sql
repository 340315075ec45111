-- Backfills, with the place up to which the log knows the rows of their tables by another key, if it does.
select b.id, b.source_id, b.epoch, b.table_oid, b.table_schema, b.table_name, b.kind, b.condition, b.state, b.reason,
    b.after_xid::text::bigint as after_xid, b.after_lsn, b.since_seqs, b.files, b.by_key, b.rows_estimated,
    b.bytes_estimated, b.ranges_all, b.ranges_done, b.rows_read, b.rows_added, b.events_table, b.first_seq, b.last_seq,
    b.gap_after, b.gap_until, b.told_seqs, b.floor_seqs, b.created_at, b.started_at, b.finished_at, b.relations, b.bounds,
    (select array[t.void_epoch, t.void_lsn] from pipeline.snapshot_tables t
     where t.source_id = b.source_id and t.table_oid = b.table_oid and t.void_lsn is not null) as void_upto
from pipeline.backfills b
