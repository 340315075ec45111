-- The same where what has the default name is somebody's own table and the log is another: serve points it there.
create view pipeline.events as
select null::bigint as seq, null::uuid as source_database_id, null::integer as source_epoch,
    null::bigint as commit_lsn, null::integer as commit_idx, null::bigint as xid, null::bigint as source_table_oid,
    null::text as source_table_schema, null::text as source_table_name, null::text collate "C" as record_pk,
    null::jsonb as record, null::jsonb as changes, null::jsonb as exact, null::text as action,
    null::text[] as unchanged_columns, null::jsonb as transaction_annotations, null::jsonb as metadata,
    null::timestamptz as committed_at, null::timestamptz as inserted_at
where false;
comment on view pipeline.events is 'The log of this server: the table that PIPELINE_EVENTS_TABLE names.';
