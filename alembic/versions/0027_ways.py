"""Batches take several ways into the log: how many changes went which, and why, is counted."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
additive = True

WAYS = """
create table pipeline.ways (
    source_id uuid not null references pipeline.sources (id),
    way text not null,
    reason text not null default '',
    changes bigint not null default 0,
    updated_at timestamptz not null default now(),
    primary key (source_id, way, reason)
);
comment on table pipeline.ways is
    'How many changes of the stream were written to the log at once, or staged and moved, and why.';
"""


def upgrade() -> None:
    """Counting begins now."""
    op.execute(WAYS)


def downgrade() -> None:
    """The counts are lost."""
    op.execute("drop table pipeline.ways")
