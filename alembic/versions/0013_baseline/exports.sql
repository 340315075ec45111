-- Lakes, and the ledger of what was exported to them.

create table pipeline.lakes (
    id uuid primary key,
    directory text not null,
    events_table text not null,
    created_at timestamptz not null default now(),
    released_at timestamptz
);
comment on table pipeline.lakes is 'Folders that a log is exported to; the id is in the manifest of each.';
comment on column pipeline.lakes.released_at is
    'Since when retention no longer waits for exports to this lake; null: it waits for them.';

create table pipeline.export_runs (
    id bigint generated always as identity primary key,
    trigger text not null,
    state text not null default 'running' check (state in ('running', 'done', 'failed')),
    holder text not null,
    log text,
    reason text,
    started_at timestamptz not null default now(),
    finished_at timestamptz
);
comment on table pipeline.export_runs is 'Every run of the export, by schedule or by command, and why it ended.';

create table pipeline.exports (
    id bigint generated always as identity primary key,
    lake_id uuid not null references pipeline.lakes,
    run_id bigint references pipeline.export_runs,
    after_seq bigint not null,
    upto_seq bigint not null check (upto_seq > after_seq),
    state text not null default 'writing' check (state in ('writing', 'publishing', 'committed', 'failed')),
    rows bigint,
    bytes bigint,
    files jsonb,
    schemas json,
    holder text not null,
    reason text,
    started_at timestamptz not null default now(),
    committed_at timestamptz
);
create unique index exports_once_idx on pipeline.exports (lake_id, after_seq)
    where state in ('publishing', 'committed');
create index exports_newest_idx on pipeline.exports (lake_id, upto_seq) where state = 'committed';
comment on table pipeline.exports is
    'The ledger: ranges of seqs, each without its first seq. A committed range is in the lake, completely and once.';
comment on column pipeline.exports.files is 'Files that an earlier version wrote; they become rows of export_files.';
comment on column pipeline.exports.schemas is 'Schemas that an earlier version wrote.';

create table pipeline.export_states (
    id bigint generated always as identity primary key,
    lake_id uuid not null references pipeline.lakes,
    dataset text not null,
    seq bigint not null,
    state text not null default 'writing' check (state in ('writing', 'committed', 'failed', 'dropped')),
    schema_version integer not null,
    columns json not null,
    buckets integer,
    rows bigint,
    bytes bigint,
    files jsonb,
    source_epoch integer,
    source_table_oid bigint,
    reason text,
    started_at timestamptz not null default now(),
    committed_at timestamptz
);
create unique index export_states_once_idx on pipeline.export_states (lake_id, dataset, seq)
    where state = 'committed';
comment on table pipeline.export_states is
    'Versions of the current state of each table: as of which seq, in which files.';
