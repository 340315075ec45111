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
comment on table pipeline.sources is 'One row per database we replicate from.';
comment on column pipeline.sources.publications is 'Publications we made: name -> pg_publication.oid.';
comment on column pipeline.sources.options is 'START_REPLICATION options: commit_idx is stable only while they stay.';
comment on column pipeline.sources.timeline is 'Timeline of the source when we last connected; null until then.';
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
    'Every history of the source that we followed: LSNs compare only inside one. Begun by pipeline sources adopt.';
comment on column pipeline.epochs.previous_position is 'How far the epoch before was staged when this one began.';
comment on column pipeline.epochs.after_seq is 'Last seq of the epoch before.';
comment on column pipeline.epochs.after_seqs is 'Last seq of the epoch before, in each events table.';

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
    'Transactions that the source could not send. It stops there while the position is not beyond commit_lsn.';
comment on column pipeline.source_stops.changes is 'How many of its changes had come before the one that did not.';
comment on column pipeline.source_stops.requested_at is 'When a user asked to skip it.';
