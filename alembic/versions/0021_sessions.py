"""Sessions: slots that clients of another system's wire stream by themselves."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
additive = True

SESSIONS = """
create table pipeline.sessions (
    id bigint generated always as identity primary key,
    slot text not null,
    wire text not null,
    source_id uuid not null references pipeline.sources (id),
    epoch integer not null,
    system_identifier text not null,
    state text not null default 'making' check (state in ('making', 'ready', 'ended')),
    made_after bigint not null,
    position bigint,
    created_at timestamptz not null default now(),
    used_at timestamptz not null default now(),
    reader text,
    reader_since timestamptz,
    reason text,
    ended_at timestamptz,
    dropped_at timestamptz
);
create unique index sessions_live_idx on pipeline.sessions (slot) where state <> 'ended';
create index sessions_kept_idx on pipeline.sessions (source_id, id) where dropped_at is null;
comment on table pipeline.sessions is
    'Slots that clients of another system''s wire created and stream. The newest hundred of the sessions that have'
    ' ended are kept.';
comment on column pipeline.sessions.wire is 'The wire whose clients use it, a name in PIPELINE_WIRES.';
comment on column pipeline.sessions.state is
    'making: its slot may exist or not. ready: it can be streamed. ended: its slot is dropped, or is about to be.';
comment on column pipeline.sessions.made_after is
    'An LSN that the source had written before the slot was created: a slot that is confirmed before this LSN is not'
    ' this one.';
comment on column pipeline.sessions.position is
    'Everything before this LSN is acknowledged. Stored before it is confirmed to the source.';
comment on column pipeline.sessions.used_at is 'When a stream or a snapshot request last used it.';
comment on column pipeline.sessions.reader is 'The client that streams it, and through which server; null: none.';
comment on column pipeline.sessions.reason is 'Why it ended.';
comment on column pipeline.sessions.dropped_at is
    'When its slot was dropped, or found not to exist; null: it may exist.';
"""


def upgrade() -> None:
    """Add the table."""
    op.execute(SESSIONS)


def downgrade() -> None:
    """Forget the sessions; their slots stay at the source, and an administrator has to drop them."""
    op.execute("drop table pipeline.sessions")
