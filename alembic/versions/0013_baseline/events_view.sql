-- The log of this server, by which SQL functions find it.
create view pipeline.events as
select seq, source_database_id, source_epoch, commit_lsn, commit_idx, xid, source_table_oid, source_table_schema,
    source_table_name, record_pk collate "C" as record_pk, record, changes, exact, action, unchanged_columns,
    transaction_annotations, metadata, committed_at, inserted_at
from public.sequin_events;
comment on view pipeline.events is 'The log of this server: the table that PIPELINE_EVENTS_TABLE names.';
