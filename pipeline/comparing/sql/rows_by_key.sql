-- The newest event of each of these rows that a snapshot at the source contains, if the log has the row then.
with looked_at as materialized (
    select s.snapshot, pg_snapshot_xmax(s.snapshot)::text::bigint as next from (select {snapshot}::pg_snapshot) s (snapshot)
), seen as materialized (
    select distinct on (c.record_pk) c.record_pk, c.source, c.seq, c.live
    from looked_at l join content_changes c on c.record_pk = any({keys}::text[]) and (c.xid is null or pg_visible_in_snapshot(
        (l.next - (mod(l.next - c.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, l.snapshot))
    order by c.record_pk, c.source_epoch desc, c.commit_lsn desc nulls last, c.commit_idx desc nulls last,
        c.given_up, c.seq desc
)
select s.record_pk, s.source, s.seq from seen s where s.live
union all
select b.record_pk, b.source, b.seq from content_state b
where b.record_pk = any({keys}::text[]) and not exists (select from seen s where s.record_pk = b.record_pk)
