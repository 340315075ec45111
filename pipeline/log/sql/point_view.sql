-- Let the view of the log show this table: columns by name, since a legacy table has them in another order.
create or replace view pipeline.events as
select seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid, source_table_oid, source_table_schema,
    source_table_name, record_pk collate "C" as record_pk, record, changes, exact, action, unchanged_columns,
    transaction_annotations, metadata, committed_at, inserted_at
from {table}
