-- The databases we replicate from: their histories, and what they could not send.

create table pipeline.sources (
    id uuid primary key,
    epoch integer not null default 0,
    system_identifier text not null,
    database_name text not null,
    slot text not null,
    publications jsonb not null default '{}',
    options jsonb not null default '{}',
    created_at timestamptz not null default now(),
    timeline integer,
    published jsonb not null default '{}'
);
comment on table pipeline.sources is 'The databases from which the server replicates.';
comment on column pipeline.sources.publications is
    'The publications that the server created: name -> pg_publication.oid.';
comment on column pipeline.sources.options is
    'START_REPLICATION options: commit_idx is stable only while they do not change.';
comment on column pipeline.sources.timeline is
    'The timeline of the source at the last connection; null: there was none.';
comment on column pipeline.sources.published is
    'The content of the publications in use at the last check: a change that narrows it is a gap.';

create table pipeline.epochs (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    system_identifier text not null,
    timeline integer,
    from_lsn bigint not null,
    previous_position bigint,
    after_seq bigint not null default 0,
    reason text not null,
    started_at timestamptz not null default now(),
    after_seqs jsonb not null default '{}',
    primary key (source_id, epoch)
);
comment on table pipeline.epochs is
    'Epochs of a source. LSNs can be compared only within one epoch. The command `pipeline sources adopt` begins the'
    ' next one.';
comment on column pipeline.epochs.previous_position is
    'The LSN up to which the previous epoch was staged when this one began.';
comment on column pipeline.epochs.after_seq is 'The last seq of the previous epoch.';
comment on column pipeline.epochs.after_seqs is 'The last seq of the previous epoch in each events table.';

create table pipeline.carried_transactions (
    source_id uuid not null references pipeline.sources,
    commit_lsn bigint not null,
    committed_at timestamptz not null,
    primary key (source_id, commit_lsn, committed_at)
);
comment on table pipeline.carried_transactions is
    'Transactions of earlier epochs that the slot of a restored source may send again: those that match are skipped.';

create table pipeline.source_stops (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    commit_lsn bigint not null,
    committed_at timestamptz not null,
    xid bigint not null,
    changes bigint not null,
    cause text not null,
    sqlstate text not null,
    stopped_at timestamptz not null default clock_timestamp(),
    requested_at timestamptz,
    skipped_at timestamptz,
    primary key (source_id, epoch, commit_lsn)
);
comment on table pipeline.source_stops is
    'Transactions that the source could not send. The server stops there until the position is beyond commit_lsn.';
comment on column pipeline.source_stops.changes is
    'The number of its changes that arrived before the one that did not.';
comment on column pipeline.source_stops.requested_at is 'When a user asked to skip it.';
