-- Find staged rows whose key was touched by a transaction that is in the log but not in the range's snapshot. A Begin has
-- the lower half of an xid: the upper half is that of the xid nearest to the snapshot's next one.
with newer as materialized (
    select e.record_pk, e.action, e.changes, e.record || e.changes as was
    from {events} e
    cross join (select pg_snapshot_xmax(%(snapshot)s::pg_snapshot)::text::bigint as next) x
    where e.seq > %(since)s and e.seq <= %(upto)s and e.source_database_id = %(source)s and e.source_epoch = %(epoch)s
        and e.source_table_oid = %(table)s and e.action in ('insert', 'update', 'delete')
        and not pg_visible_in_snapshot(
            (x.next - (mod(x.next - e.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, %(snapshot)s::pg_snapshot)
), touched as (
    select n.record_pk from newer n
    union
    select old.record_pk
    from newer n join pipeline.relations r on r.id = %(relation)s cross join lateral ({key}) old
    where n.action = 'update' and n.changes ?| r.key_columns
)
select s.ordinal from only {segment} s where s.record_pk in (select record_pk from touched)
