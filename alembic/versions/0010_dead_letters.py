"""Dead letters: what could not be written, and what the source could not send."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STAGING = """
alter table public.wal_events add column metadata text;
comment on column public.wal_events.metadata is 'Marks of the event, as JSON; null for what the source has sent.';
"""

LETTERS = """
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
    'Of the event that holds its place; retried_seq: of the one that has its values.';
comment on column pipeline.dead_letters.cause is 'Why the last attempt failed.';
"""

STOPS = """
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
comment on column pipeline.source_stops.requested_at is 'When somebody asked to pass over it.';
"""


def upgrade() -> None:
    """Additive."""
    for part in (STAGING, LETTERS, STOPS):
        op.execute(part)


def downgrade() -> None:
    """Forget what was parked; the events in their place stay."""
    op.execute("""
        drop table pipeline.source_stops, pipeline.dead_letters;
        alter table public.wal_events drop column metadata;
    """)
