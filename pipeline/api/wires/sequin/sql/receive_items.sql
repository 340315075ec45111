-- Deliver items, their values as the texts of jsonb, and their times as Sequin writes them.
select i.ack_id::text as ack_id, i.seq, i.commit_lsn, i.commit_idx, i.source_table_schema, i.source_table_name,
    i.record_pk, i.action, i.record::text as record, i.changes::text as changes, i.exact::text as exact,
    i.transaction_annotations::text as annotations,
    to_char(i.committed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as committed_at
from pipeline.receive(%(name)s::text, %(most)s::int) as i
