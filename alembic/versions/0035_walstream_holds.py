"""Each session of walstream's clients leaves a hold: what it had acknowledged, and the seconds that remain."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
additive = True

COLUMNS = """
alter table pipeline.walstream_sessions
    add column acknowledged_seq bigint,
    add column hold_seconds double precision,
    add column counted_at timestamptz,
    add column highest_seq bigint;
comment on table pipeline.walstream_sessions is
    'Sessions of walstream''s clients, and holds: a session that has ended holds the position of the consumer for 60'
    ' s.';
comment on column pipeline.walstream_sessions.ended_at is
    'When it ended, and became a hold; null: its client is connected.';
comment on column pipeline.walstream_sessions.acknowledged_seq is
    'The session needs nothing up to this seq; null: an older version began it.';
comment on column pipeline.walstream_sessions.hold_seconds is
    'The remaining seconds of the hold, in which the wire is served; null: not counted yet.';
comment on column pipeline.walstream_sessions.counted_at is 'When hold_seconds was stored last.';
comment on column pipeline.walstream_sessions.highest_seq is
    'The highest acknowledged_seq of any session or hold since this hold began.';
"""


def upgrade() -> None:
    """Sessions that an older version began hold the position where it is."""
    op.execute(COLUMNS)


def downgrade() -> None:
    """Forget how long holds last: the older version waits a minute from `ended_at` on."""
    op.execute(
        "alter table pipeline.walstream_sessions drop column acknowledged_seq, drop column hold_seconds,"
        " drop column counted_at, drop column highest_seq;"
        " comment on table pipeline.walstream_sessions is"
        " 'Sessions of walstream''s clients; one that has ended stays while it holds the position of consumer"
        " walstream.';"
        " comment on column pipeline.walstream_sessions.ended_at is"
        " 'When it ended and still owed something; null: it is there.'"
    )
