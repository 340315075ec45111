-- Changes as workers stage them, who writes them and how far they are.

create table public.wal_events (
    commit_lsn bigint not null,
    commit_idx integer not null,
    ordinal bigint not null,
    relation_id integer not null,
    xid bigint not null,
    committed_at timestamptz not null,
    action text not null,
    record_pk text not null,
    record text not null,
    changes text,
    exact text,
    unchanged_columns text,
    transaction_annotations text,
    previous_pk text,
    metadata text
);
comment on table public.wal_events is
    'Staging: raw changes in the order workers read them. Private; its rows live in children, one per segment.';
comment on column public.wal_events.ordinal is
    'Counts rows in the order of (commit_lsn, commit_idx), without gaps in a segment.';
comment on column public.wal_events.previous_pk is
    'record_pk before an update that changed the key; null if it is the same.';
comment on column public.wal_events.metadata is
    'Marks of the event, as JSON; null for a change that the source has sent.';

create table pipeline.segments (
    id integer generated always as identity primary key,
    source_id uuid references pipeline.sources,
    worker integer,
    state text not null default 'free' check (state in ('free', 'filling', 'full', 'drained')),
    first_lsn bigint,
    last_lsn bigint,
    first_ordinal bigint,
    row_count bigint not null default 0
);
comment on table pipeline.segments is
    'One row per child of wal_events: free, filling, full, or drained, which is emptied later.';

create table pipeline.replication_progress (
    source_id uuid not null references pipeline.sources,
    worker integer not null default 0,
    epoch integer not null,
    generation bigint not null default 1,
    position bigint not null,
    commit_lsn bigint not null default 0,
    committed_at timestamptz,
    open_commit_lsn bigint,
    open_changes bigint not null default 0,
    changes bigint not null default 0,
    transactions bigint not null default 0,
    updated_at timestamptz not null default now(),
    backend_pid integer,
    backend_start timestamptz,
    primary key (source_id, worker)
);
comment on column pipeline.replication_progress.position is
    'The LSN that may be confirmed: the end of the last completely staged transaction, or a later LSN without'
    ' changes to stage before it.';
comment on column pipeline.replication_progress.generation is
    'Grows with each new worker; a worker of an older generation can write nothing.';
comment on column pipeline.replication_progress.backend_pid is
    'With backend_start, the session of the newest writer, which a newer writer may end.';

create table pipeline.catchup_parts (
    source_id uuid not null references pipeline.sources,
    worker integer not null check (worker > 0),
    epoch integer not null,
    from_lsn bigint not null,
    until_lsn bigint check (until_lsn > from_lsn),
    planned_at timestamptz not null default now(),
    primary key (source_id, worker)
);
comment on table pipeline.catchup_parts is
    'Parts of a backlog, for several workers: commit records begin in [from_lsn, until_lsn). Worker 0 stages'
    ' everything before them; without rows here, everything.';
comment on column pipeline.catchup_parts.until_lsn is 'Null: the newest part, which has no end yet.';

create view pipeline.reached_workers as
select source_id, worker, epoch, generation, position, commit_lsn
from (
    select p.source_id, p.worker, p.epoch, p.generation, p.position, p.commit_lsn,
        coalesce(bool_and(p.position >= p.ends_at) over (
            partition by p.source_id order by p.begins_at nulls first rows between unbounded preceding and 1 preceding
        ), true) as reached
    from (
        select p.*, c.from_lsn as begins_at,
            lead(c.from_lsn) over (partition by p.source_id order by c.from_lsn nulls first) as ends_at
        from pipeline.replication_progress p
        left join pipeline.catchup_parts c using (source_id, worker)
        where p.worker = 0 or c.worker is not null
    ) p
) chain
where reached;
comment on view pipeline.reached_workers is
    'Workers before whose part everything is staged: what they stage is next in the order of commits.';
