"""Partitions that may have been one before a look saw them join: the log may have rows of them that are gone."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None
additive = True

IN_DOUBT = """
alter table pipeline.partition_changes add column in_doubt boolean not null default false;
comment on column pipeline.partition_changes.in_doubt is
    'True if the partition was attached after it was created: it is compared if the log gets rows of it that are'
    ' older than the check that found it.';
"""


def upgrade() -> None:
    """Create the column; tables that joined before are not in doubt."""
    op.execute(IN_DOUBT)


def downgrade() -> None:
    """Forget which are."""
    op.execute("alter table pipeline.partition_changes drop column in_doubt")
