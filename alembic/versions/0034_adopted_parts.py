"""A part of a catch-up can become partitions of the events table: it has its own seqs, reserved with the plan."""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
additive = True

SEQS = """
alter table pipeline.catchup_parts add column first_seq bigint;
comment on column pipeline.catchup_parts.first_seq is
    'The part may become partitions with seqs from this one on; null: it is staged, and moved.';
"""


def upgrade() -> None:
    """No part has seqs."""
    op.execute(SEQS)


def downgrade() -> None:
    """Drop the column: waiting parts are in pipeline.adopted_tables, and parts being read have stored nothing."""
    op.execute("alter table pipeline.catchup_parts drop column first_seq")
