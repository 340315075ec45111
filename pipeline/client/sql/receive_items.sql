-- Take the next items of a consumer.
select i.ack_id, i.seq, i.commit_lsn, i.commit_idx, i.source_table_schema, i.source_table_name, i.record_pk, i.action,
    i.record::text as record, i.changes::text as changes, i.exact::text as exact, i.unchanged_columns,
    i.transaction_annotations::text as transaction_annotations, i.metadata::text as metadata, i.committed_at, i.deliveries
from pipeline.receive(%(consumer)s::text, %(most)s::int, make_interval(secs => %(visibility)s::float8)) i
