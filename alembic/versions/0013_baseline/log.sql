-- The events tables beside their rows: how far the shuffler is, routes, retention, dead letters.

create table pipeline.shuffle_progress (
    source_id uuid primary key references pipeline.sources,
    epoch integer not null,
    commit_lsn bigint not null default 0,
    committed_at timestamptz,
    last_seq bigint,
    events bigint not null default 0,
    updated_at timestamptz not null default now()
);
comment on table pipeline.shuffle_progress is 'The watermark: the last transaction moved to the events tables.';

create table pipeline.events_tables (
    source_id uuid not null references pipeline.sources,
    name text not null,
    last_seq bigint,
    events bigint not null default 0,
    added_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (source_id, name)
);
comment on table pipeline.events_tables is
    'Every events table that was ever written for a source: its newest seq, and the number of events that the'
    ' shuffler added.';

create table pipeline.routes (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    after_lsn bigint not null,
    events_table text not null,
    routes jsonb not null,
    first_seqs jsonb not null,
    since timestamptz not null default now()
);
create index routes_newest_idx on pipeline.routes (source_id, id);
comment on table pipeline.routes is
    'The routes for transactions of an epoch after after_lsn, until the next row. events_table: the default one.';
comment on column pipeline.routes.first_seqs is 'By events table, the seq below which older routes have decided.';

create table pipeline.retention (
    events_table text primary key,
    dropped_below bigint not null default 1,
    dropped_at timestamptz not null default now(),
    dropping oid,
    dropping_name text,
    dropping_since timestamptz
);
comment on table pipeline.retention is
    'How far retention has dropped an events table: every seq below dropped_below is gone, or will be at once.';
comment on column pipeline.retention.dropping is
    'The partition that is being dropped; after a crash, the next server continues with it.';

create table pipeline.known_rows (
    source_id uuid not null,
    table_oid bigint not null,
    record_pk text collate "C" not null,
    epoch integer not null,
    commit_lsn bigint not null,
    commit_idx integer not null,
    record jsonb not null,
    exact jsonb,
    primary key (source_id, table_oid, record_pk)
);
comment on table pipeline.known_rows is
    'Values of rows whose last event retention has dropped: a later update may leave them out, since they are TOASTed.';

create table pipeline.dead_letters (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    commit_lsn bigint not null,
    commit_idx integer not null,
    xid bigint not null,
    relation_id integer not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    action text not null,
    record_pk text collate "C" not null,
    record text not null,
    changes text,
    exact text,
    unchanged_columns text,
    transaction_annotations text,
    committed_at timestamptz not null,
    events_table text not null,
    seq bigint not null,
    retried_seq bigint,
    cause text not null,
    sqlstate text not null,
    state text not null default 'parked' check (state in ('parked', 'retrying', 'retried', 'discarded')),
    attempts integer not null default 1,
    parked_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp()
);
create index dead_letters_open_idx on pipeline.dead_letters (state, id) where state in ('parked', 'retrying');
comment on table pipeline.dead_letters is
    'Changes that could not be written to an events table, as they were staged. Each has an event in its place.';
comment on column pipeline.dead_letters.seq is
    'seq of the event that holds its place; retried_seq: of the event that has its values.';
comment on column pipeline.dead_letters.cause is 'Why the last attempt failed.';
