"""Sessions of walstream's clients, so that a crash forgets no missing acknowledgement; counts of wires."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
additive = True

TABLES = """
create table pipeline.walstream_sessions (
    id bigint generated always as identity primary key,
    claim text not null,
    server text not null,
    peer text not null,
    since timestamptz not null default clock_timestamp(),
    sent_seq bigint,
    unacknowledged bigint not null default 0,
    ended_at timestamptz
);
comment on table pipeline.walstream_sessions is
    'Sessions of walstream''s clients, and holds: a session that has ended holds the position of the consumer for 60'
    ' s.';
comment on column pipeline.walstream_sessions.claim is 'reader_session of consumer walstream when it began.';
comment on column pipeline.walstream_sessions.sent_seq is 'The last event that it was sent, some seconds ago.';
comment on column pipeline.walstream_sessions.unacknowledged is
    'Events that it was sent and has not acknowledged, some seconds ago.';
comment on column pipeline.walstream_sessions.ended_at is
    'When it ended, and became a hold; null: its client is connected.';
create table pipeline.wire_counters (
    wire text not null,
    name text not null,
    count bigint not null,
    primary key (wire, name)
);
comment on table pipeline.wire_counters is 'Counters of what has happened on the wires of other systems'' clients.';
"""


def upgrade() -> None:
    """Add the tables."""
    op.execute(TABLES)


def downgrade() -> None:
    """Forget both: clients that owed something may miss it if others acknowledge it within the next minute."""
    op.execute("drop table pipeline.walstream_sessions, pipeline.wire_counters")
