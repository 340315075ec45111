-- Measurements from which lag and rates are told.

create table pipeline.lag_samples (
    sampled_at timestamptz primary key default now(),
    source_lsn bigint,
    confirmed_lsn bigint,
    staged_lsn bigint,
    shuffled_lsn bigint,
    staged_changes bigint not null,
    events bigint not null
);
comment on table pipeline.lag_samples is 'Positions and counts every few seconds, for rates.';

create table pipeline.wal_written (
    source_id uuid not null,
    epoch integer not null,
    lsn bigint not null,
    written_at timestamptz not null,
    spilled_bytes bigint,
    primary key (source_id, epoch, lsn)
);
comment on table pipeline.wal_written is
    'How far the source had written its WAL, and when by its clock. Older rows are farther apart.';
comment on column pipeline.wal_written.written_at is 'The last moment at which nothing beyond lsn was written yet.';
comment on column pipeline.wal_written.spilled_bytes is
    'Bytes that decoding for the slot had spilled to the disk of the source by then.';

create table pipeline.worker_load (
    source_id uuid primary key,
    epoch integer not null,
    moved_lsn bigint not null,
    starved real not null,
    blocked real not null,
    sending real not null,
    measured_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table pipeline.worker_load is
    'Reasons for which the worker waited in the last seconds; written only while rows wait to be staged or moved.';
comment on column pipeline.worker_load.moved_lsn is
    'Everything before this LSN was in the events tables at some moment.';
comment on column pipeline.worker_load.starved is 'Share of the time in which it waited for the source.';
comment on column pipeline.worker_load.blocked is 'Share of the time in which it waited for its rows to be staged.';
comment on column pipeline.worker_load.sending is 'Share of the samples in which the walsender could not send more.';
