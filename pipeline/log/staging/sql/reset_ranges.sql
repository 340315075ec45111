-- Plan ranges again, and empty their segments.
with reset as (
    update pipeline.snapshot_ranges r
    set state = 'planned', token = null, reader_pid = null, reader_start = null, segment_id = null, snapshot = null,
        since_seqs = null, marker_xid = null, version = null, by_key = null, rows_read = 0, departed = null, seen_lsn = null,
        commit_lsn = null, committed_at = null, xid = null, relation_id = null
    from pipeline.snapshot_ranges was
    where r.id = any(%(ids)s) and was.id = r.id and r.state in ('reading', 'staged', 'placed')
    returning was.segment_id
)
update pipeline.segments set state = 'drained' where id in (select segment_id from reset) and state = 'full'
