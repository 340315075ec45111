"""Composite types that were altered: the log records it as it records rewritten tables."""

from __future__ import annotations

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None
additive = True

_KINDS = """
alter table pipeline.rewrites drop constraint rewrites_kind_check,
    add constraint rewrites_kind_check check (kind in ({}));
"""


def upgrade() -> None:
    """`attributes`: values have others; `renamed`: only their names have changed, so it is settled at once."""
    op.execute(_KINDS.format("'type', 'default', 'values', 'attributes', 'renamed'"))


def downgrade() -> None:
    """Forget these records: followers that have not read them yet will not see them."""
    op.execute("delete from pipeline.rewrites where kind in ('attributes', 'renamed')")
    op.execute(_KINDS.format("'type', 'default', 'values'"))
