"""Lag explained: when the source wrote which LSN, and what the worker that is behind waits for."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

WRITTEN = """
create table pipeline.wal_written (
    source_id uuid not null,
    epoch integer not null,
    lsn bigint not null,
    written_at timestamptz not null,
    spilled_bytes bigint,
    primary key (source_id, epoch, lsn)
);
comment on table pipeline.wal_written is
    'How far the source had written, and when by its own clock; the older, the farther apart.';
comment on column pipeline.wal_written.written_at is 'The last moment at which nothing beyond lsn was written.';
comment on column pipeline.wal_written.spilled_bytes is
    'What decoding for the slot had spilled to the disk of the source by then.';
"""

LOAD = """
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
    'What the worker waited for in the last seconds; written only while something waits to be staged or moved.';
comment on column pipeline.worker_load.moved_lsn is 'Everything before it was in the events tables at some moment.';
comment on column pipeline.worker_load.starved is 'Share of the time in which it waited for the source.';
comment on column pipeline.worker_load.blocked is 'Share of the time in which it waited for its rows to be staged.';
comment on column pipeline.worker_load.sending is 'Share of the looks at which the walsender could not send on.';
"""


def upgrade() -> None:
    """Additive."""
    for part in (WRITTEN, LOAD):
        op.execute(part)


def downgrade() -> None:
    """Forget when what was written."""
    op.execute("drop table pipeline.worker_load, pipeline.wal_written")
