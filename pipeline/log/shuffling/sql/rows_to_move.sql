(select a.commit_lsn, a.commit_idx, a.seq as ordinal, r.id as relation_id, a.xid, a.committed_at, a.action, a.record_pk,
    a.record::text as record, a.changes::text as changes, a.exact::text as exact, null::text as unchanged_columns,
    null::text as transaction_annotations, null::text as previous_pk, null::text as metadata
from only {table} a left join (
    select max(id) as id, table_oid, table_schema, table_name from pipeline.relations where id = any({relations})
    group by 2, 3, 4
) r on r.table_oid = a.source_table_oid and r.table_schema = a.source_table_schema and r.table_name = a.source_table_name)
