-- Select a dead letter as the row that was staged, with its seq.
select d.commit_lsn, d.commit_idx, 0::bigint as ordinal, d.relation_id, d.xid, d.committed_at, d.action, d.record_pk,
    d.record, d.changes, d.exact, null::text as unchanged_columns, d.transaction_annotations,
    %(metadata)s::text as metadata, %(seq)s::bigint as seq
from pipeline.dead_letters d
where d.id = %(id)s
