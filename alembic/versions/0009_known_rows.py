"""Last known rows: what an update leaves out is filled in, also when the row's last event is no longer in the log."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STAGING = """
alter table public.wal_events add column previous_pk text;
comment on column public.wal_events.previous_pk is
    'What record_pk was before an update that changed the key; null when it is the same.';
"""

RELATIONS = """
alter table pipeline.relations add column unique_in_root boolean, add column memberships bigint[];
comment on column pipeline.relations.unique_in_root is
    'No two rows of the partition root share a key; null when it was not asked.';
comment on column pipeline.relations.memberships is
    'oids of what makes publications publish its updates: when all of them are new, updates in between are in no log.';
"""

KNOWN_ROWS = """
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
    'Of rows whose last event retention has dropped: values that a later update may leave out, being TOASTed.';
"""


def upgrade() -> None:
    """Additive."""
    for part in (STAGING, RELATIONS, KNOWN_ROWS):
        op.execute(part)


def downgrade() -> None:
    """Forget what was known of rows without events: their updates name what they leave out."""
    op.execute("""
        drop table pipeline.known_rows;
        alter table pipeline.relations drop column unique_in_root, drop column memberships;
        alter table public.wal_events drop column previous_pk;
    """)
