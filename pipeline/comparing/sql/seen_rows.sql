-- The rows of parts as the log has them, each part as of a snapshot at the source.
with looked_at as materialized (
    select part, snapshot::pg_snapshot, pg_snapshot_xmax(snapshot::pg_snapshot)::text::bigint as next
    from unnest({parts}::integer[], {snapshots}::text[]) l (part, snapshot)
), seen as materialized (
    select distinct on (l.part, c.record_pk) l.part, c.record_pk, c.source, c.seq, c.live, c.checksum, {key_texts_of_change} as key
    from looked_at l join content_changes c on c.part = l.part and (c.xid is null or pg_visible_in_snapshot(
        -- A Begin message has only the lower half of an xid: the full xid is the nearest one to the snapshot's next xid.
        (l.next - (mod(l.next - c.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, l.snapshot))
    order by l.part, c.record_pk, c.source_epoch desc, c.commit_lsn desc nulls last, c.commit_idx desc nulls last,
        c.given_up, c.seq desc
), there as (
    select b.part, b.record_pk, b.source, b.seq, b.checksum, {key_texts_of_state} as key
    from looked_at l join content_state b on b.part = l.part
    where not exists (select from seen s where s.record_pk = b.record_pk)
    union all
    select s.part, s.record_pk, s.source, s.seq, s.checksum, s.key from seen s where s.live
)
