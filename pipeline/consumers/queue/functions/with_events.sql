-- Return delivered items with their events, for a consumer of another events table than the default one. For the
-- default table, receive has its own statement.
create or replace function pipeline.with_events(reader pipeline.consumers, handed public.consumer_records[])
returns table (
    ack_id uuid, seq bigint, commit_lsn bigint, commit_idx integer, source_table_schema text, source_table_name text,
    record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[],
    transaction_annotations jsonb, metadata jsonb, committed_at timestamptz, deliveries integer)
language plpgsql stable rows 10 set search_path = ''
as $$
begin
    return query execute format($query$
        select h.ack_id, h.seq, h.commit_lsn, h.commit_idx, e.source_table_schema, e.source_table_name,
            h.record_pk, h.action, coalesce(h.record, e.record),
            case when h.record is null then e.changes end, case when h.record is null then e.exact end,
            case when h.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, h.deliveries
        from unnest($1) h
        cross join lateral (
            (select to_jsonb(e) as event from %s e
            where e.seq = h.seq and e.seq between $2 and $3 and h.event is null
            order by (e.source_table_oid = h.source_table_oid and e.record_pk = h.record_pk) desc limit 1)
            union all
            select h.event where h.event is not null
        ) found_one
        cross join lateral jsonb_populate_record(null::pipeline.events, found_one.event) e
        order by h.queued_seq, h.record is null, h.record_pk$query$, pipeline.events_relation(reader.events_table))
    using handed, (select min(h.seq) from unnest(handed) h), (select max(h.seq) from unnest(handed) h);
end $$;
revoke execute on function pipeline.with_events(reader pipeline.consumers, handed public.consumer_records[]) from public;
