"""${message}"""

from __future__ import annotations

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
additive = True  # False where a server of the version before cannot go on: it is then waited for


def upgrade() -> None:
    """What the new revision adds."""
    ${upgrades if upgrades else "op.execute(...)"}


def downgrade() -> None:
    """Back to the revision before."""
    ${downgrades if downgrades else "op.execute(...)"}
