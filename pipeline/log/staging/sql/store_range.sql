-- Record that the rows of a range are staged, in the transaction that copied them; false if its reader has lost the range.
with stored as (
    update pipeline.snapshot_ranges
    set state = 'staged', segment_id = %(segment)s, rows_read = %(rows)s, snapshot = %(snapshot)s::pg_snapshot,
        since_seqs = %(since_seqs)s, version = %(version)s, by_key = %(by_key)s, marker_xid = %(marker_xid)s::text::xid8,
        departed = %(departed)s
    where id = %(id)s and token = %(token)s and state = 'reading'
    returning 1
), filled as (
    update pipeline.segments set state = 'full', row_count = %(rows)s
    where id = %(segment)s and exists (select from stored)
)
select exists (select from stored)
