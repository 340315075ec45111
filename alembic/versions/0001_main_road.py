"""The road from WAL to SQL readers: sources, relations, staging, the events table, progress."""

from __future__ import annotations

from typing import cast

from alembic import context, op

from pipeline.log import legacy_tables
from pipeline.log.table import DEFAULT
from pipeline.postgres import connections

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CATALOG = """
create table pipeline.sources (
    id uuid primary key,
    epoch integer not null default 0,
    system_identifier text not null,
    database_name text not null,
    slot text not null,
    publications jsonb not null default '{}',
    options jsonb not null default '{}',
    created_at timestamptz not null default now()
);
comment on table pipeline.sources is 'One row per database we replicate from.';
comment on column pipeline.sources.publications is 'Publications we made: name -> pg_publication.oid.';
comment on column pipeline.sources.options is 'START_REPLICATION options: commit_idx is stable only while they stay.';

create table pipeline.relations (
    id integer generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    relation_schema text not null,
    relation_name text not null,
    table_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    replica_identity text not null,
    columns jsonb not null,
    key_columns text[] not null,
    from_lsn bigint not null,
    created_at timestamptz not null default now()
);
create index relations_history_idx on pipeline.relations (source_id, relation_oid, id);
comment on table pipeline.relations is
    'Every form a source table has had, and from which LSN: relation_* as replicated, table_* the partition root.';

create table pipeline.roles (
    role text primary key,
    server text not null,
    pid integer not null,
    state text not null,
    reason text,
    since timestamptz not null default now()
);
comment on table pipeline.roles is 'Which process holds each role of serve, and how it is.';

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
"""

STAGING = """
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
    transaction_annotations text
);
comment on column public.wal_events.ordinal is
    'Counts rows in the order of (commit_lsn, commit_idx), without gaps in a segment.';
comment on table public.wal_events is
    'Staging: raw changes in the order workers read them. Private; its rows live in children, one per segment.';

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
    'One row per child of wal_events: free, filling, full, or drained and to be emptied.';

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
    primary key (source_id, worker)
);
comment on column pipeline.replication_progress.position is
    'End of the last transaction staged whole, or a later point with nothing for us before it: what may be confirmed.';
comment on column pipeline.replication_progress.generation is
    'Counts up with each worker; an older one can write nothing.';

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
"""

EVENTS = """
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
"""


def upgrade() -> None:
    """Everything that `pipeline serve` needs for its main job. An events table from before is migrated."""
    for part in (CATALOG, STAGING):
        op.execute(part)
    if context.is_offline_mode() or not _taken():
        op.execute(EVENTS)
    elif context.config.attributes.get("events_table", str(DEFAULT)) == str(DEFAULT):
        legacy_tables.migrate(cast(connections.Connection, op.get_bind().connection.driver_connection), DEFAULT)


def downgrade() -> None:
    """Remove it all, the events included; but a table from before us stays, with what is in it."""
    if context.is_offline_mode() or _is_ours():
        op.execute("drop table public.sequin_events cascade")
    op.execute("""
        drop table public.wal_events cascade;
        drop table pipeline.lag_samples, pipeline.roles, pipeline.segments, pipeline.shuffle_progress,
            pipeline.replication_progress, pipeline.relations, pipeline.sources;
    """)


def _taken() -> bool:
    return bool(op.get_bind().exec_driver_sql("select to_regclass('public.sequin_events') is not null").scalar())


def _is_ours() -> bool:
    """Ours are partitioned by seq and have no column `id`, which every table from before has."""
    query = """
        select pg_get_partkeydef(c.oid) = 'RANGE (seq)' and not exists (
            select from pg_attribute a where a.attrelid = c.oid and a.attname = 'id' and not a.attisdropped)
        from pg_class c where c.oid = to_regclass('public.sequin_events')
    """
    return bool(op.get_bind().exec_driver_sql(query).scalar())
