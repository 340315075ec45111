-- Keep a row that cannot be written, as it was staged, and why.
insert into pipeline.dead_letters (source_id, epoch, commit_lsn, commit_idx, xid, relation_id, table_oid, table_schema,
    table_name, action, record_pk, record, changes, exact, unchanged_columns, transaction_annotations, committed_at,
    events_table, seq, cause, sqlstate)
select %(source)s, %(epoch)s, w.commit_lsn, w.commit_idx, w.xid, w.relation_id,
    case when w.action = 'truncate' then r.relation_oid else r.table_oid end,
    case when w.action = 'truncate' then r.relation_schema else r.table_schema end,
    case w.action when 'truncate' then r.relation_name when 'message' then coalesce(nullif(r.table_name, ''), w.record_pk)
        else r.table_name end,
    w.action, w.record_pk, w.record, w.changes, w.exact, w.unchanged_columns, w.transaction_annotations, w.committed_at,
    '', 0, %(cause)s, %(sqlstate)s
from {rows} w join pipeline.relations r on r.id = w.relation_id
where w.ordinal = %(ordinal)s
returning id
