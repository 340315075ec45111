-- Insert staged rows as events, with the seqs that they have; those that lack unchanged values are left out.
insert into {events} (
    seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid,
    source_table_oid, source_table_schema, source_table_name,
    record_pk, record, changes, exact, action, unchanged_columns, transaction_annotations, metadata, committed_at)
select
    w.seq, %(source)s::uuid, %(epoch)s::integer, w.commit_lsn, w.commit_idx, w.xid,
    case when w.action = 'truncate' then r.relation_oid else r.table_oid end,
    case when w.action = 'truncate' then r.relation_schema else r.table_schema end,
    case w.action when 'truncate' then r.relation_name when 'message' then coalesce(nullif(r.table_name, ''), w.record_pk)
        else r.table_name end,
    case when w.action = 'message' then '' else w.record_pk end, w.record::jsonb, w.changes::jsonb,
    case when w.exact is not null then (
        -- Only texts that jsonb does not return unchanged.
        select jsonb_object_agg(e.key, e.value) from jsonb_each_text(w.exact::jsonb) e
        where (w.record::jsonb -> e.key)::text is distinct from e.value
            or w.record::jsonb -> e.key = 'null'::jsonb
    ) end,
    w.action, null,
    w.transaction_annotations::jsonb, w.metadata::jsonb, w.committed_at
from {rows} w left join pipeline.relations r on r.id = w.relation_id -- a row without a relation would fail, not vanish
where w.unchanged_columns is null
