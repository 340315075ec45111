"""Values: a row is built again from an event, in SQL."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

POPULATE = Path(__file__).with_name("0006_functions") / "populate.sql"
COMMENT = """
comment on function pipeline.populate(anyelement, jsonb, jsonb) is
    'The row of an event as its source had it: pipeline.populate(null::shop.orders, record, exact). Reads no table.';
"""


def upgrade() -> None:
    """Additive. Anybody may call it: it reads nothing but its arguments."""
    for part in (POPULATE.read_text("utf-8"), COMMENT):
        # A colon is part of the text, not a bind parameter.
        op.execute(part.replace(":", "\\:"))


def downgrade() -> None:
    """Rows are still to be had column by column."""
    op.execute("drop function pipeline.populate(anyelement, jsonb, jsonb)")
