-- Create an events table like the default one: the same columns and indexes, its own seq.
create sequence {sequence};
create table {table} (
    seq bigint primary key default nextval({sequence_name}::regclass),
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
create index on {table} (source_database_id, source_table_oid, record_pk, seq);
alter sequence {sequence} owned by {column};
