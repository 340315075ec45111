-- Return the dead letters: items that were delivered max_deliveries times. They stay until a user retries or discards
-- them, and block no other item.
create or replace function pipeline.dead_records(consumer text)
returns table (
    seq bigint, commit_lsn bigint, commit_idx integer, source_table_oid bigint, source_table_schema text,
    source_table_name text, record_pk text, action text, record jsonb, changes jsonb, exact jsonb,
    unchanged_columns text[], transaction_annotations jsonb, metadata jsonb, committed_at timestamptz,
    deliveries integer)
language plpgsql stable security definer set search_path = ''
as $$
#variable_conflict use_column
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
begin
    return query
        select r.seq, r.commit_lsn, r.commit_idx, r.source_table_oid, e.source_table_schema, e.source_table_name,
            r.record_pk, r.action, coalesce(r.record, e.record),
            case when r.record is null then e.changes end, case when r.record is null then e.exact end,
            case when r.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, r.deliveries
        from public.consumer_records r
        cross join lateral jsonb_populate_record(null::pipeline.events, r.event) e
        where r.consumer_id = me.id and r.state = 'dead'
        order by r.seq, r.record is null, r.record_pk;
end $$;
revoke execute on function pipeline.dead_records(consumer text) from public;
