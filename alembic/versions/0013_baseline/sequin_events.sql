-- The default events table. Others are made by pipeline/events/sql/create_table.sql.

create table public.sequin_events (
    seq bigserial primary key,
    source_database_id uuid not null,
    source_epoch integer not null default 0,
    commit_lsn bigint,
    commit_idx integer,
    xid bigint,
    source_table_oid bigint not null,
    source_table_schema text not null,
    source_table_name text not null,
    record_pk text collate "C" not null,
    record jsonb not null,
    changes jsonb,
    exact jsonb,
    action text not null,
    unchanged_columns text[],
    transaction_annotations jsonb,
    metadata jsonb,
    committed_at timestamptz not null,
    inserted_at timestamptz not null default now()
) partition by range (seq);
create index sequin_events_row_history_idx
    on public.sequin_events (source_database_id, source_table_oid, record_pk, seq);
comment on table public.sequin_events is
    'Every committed change of the source, in commit order. Read: where seq > $last order by seq.';
