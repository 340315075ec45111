-- Remove items older than the truncate of their table, but not those that are in flight.
delete from public.consumer_records r
using (
    select o.source_table_oid, o.record_pk, o.unkeyed
    from unnest(%(tables)s::bigint[], %(seqs)s::bigint[]) t (source_table_oid, seq)
    cross join lateral (
        select o.source_table_oid, o.record_pk, o.unkeyed from public.consumer_records o
        where o.consumer_id = %(consumer)s and o.source_table_oid = t.source_table_oid and o.seq < t.seq
            and (o.state in ('available', 'dead') or o.visible_at <= clock_timestamp())
        for update skip locked
    ) o
) gone
where r.consumer_id = %(consumer)s and r.source_table_oid = gone.source_table_oid
    and r.record_pk = gone.record_pk and r.unkeyed = gone.unkeyed
