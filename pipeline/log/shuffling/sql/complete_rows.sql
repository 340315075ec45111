-- Complete staged rows of which the log has newer changes that all left the same values unchanged. The newest change has
-- every other value, and the unchanged ones are as they were read: so such a row becomes an event with both.
with staged as materialized (
    select s.ordinal, s.record_pk collate "C" as record_pk, s.record::jsonb as record, s.exact::jsonb as exact
    from only {segment} s where s.ordinal = any(%(ordinals)s) and s.action <> 'delete'
), newer as materialized (
    select e.seq, e.record_pk, e.action = 'update' and e.metadata is null as is_update, e.unchanged_columns,
        coalesce(e.changes ?| r.key_columns, false) as new_key,
        case when s.ordinal is not null then e.record end as record,
        case when s.ordinal is not null then e.exact end as exact
    from {events} e
    cross join (select pg_snapshot_xmax(%(snapshot)s::pg_snapshot)::text::bigint as next) x
    join pipeline.relations r on r.id = %(relation)s
    left join staged s on s.record_pk = e.record_pk
    where e.seq > %(since)s and e.seq <= %(upto)s and e.source_database_id = %(source)s and e.source_epoch = %(epoch)s
        and e.source_table_oid = %(table)s and e.action in ('insert', 'update', 'delete')
        and (s.ordinal is not null or e.changes ?| r.key_columns)
        and not pg_visible_in_snapshot(
            (x.next - (mod(x.next - e.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, %(snapshot)s::pg_snapshot)
), newest as (
    select distinct on (n.record_pk) n.record_pk, n.record, n.exact, n.unchanged_columns
    from newer n order by n.record_pk, n.seq desc
), whole as (
    select s.ordinal, n.record || alone.record as record, coalesce(n.exact, '{{}}') || coalesce(alone.exact, '{{}}') as exact
    from newest n
    join staged s on s.record_pk = n.record_pk
    cross join lateral (
        select jsonb_object_agg(u.name, s.record -> u.name) as record,
            jsonb_object_agg(u.name, s.exact -> u.name) filter (where s.exact ? u.name) as exact
        from unnest(n.unchanged_columns) u (name)
    ) alone
    where s.record ?& n.unchanged_columns and not exists (
        select from newer o where o.new_key or o.record_pk = n.record_pk
            and not (o.is_update and coalesce(o.unchanged_columns @> n.unchanged_columns, false)))
)
update only {segment} s set record = w.record::text, exact = nullif(w.exact, '{{}}')::text
from whole w where s.ordinal = w.ordinal
returning s.ordinal
