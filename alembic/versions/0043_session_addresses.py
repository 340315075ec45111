"""The address whose client made a session, and what the session was used for: they say how soon it makes room."""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0040"
branch_labels = None
depends_on = None
additive = True

COLUMNS = """
alter table pipeline.sessions add column address text, add column used_for text
    check (used_for in ('pages', 'stream'));
comment on column pipeline.sessions.address is 'The address of the client that made it; null: it is not known.';
comment on column pipeline.sessions.used_for is
    'pages: a client has read its snapshot. stream: a client has streamed it. null: no request has used it.';
"""


def upgrade() -> None:
    """Sessions that exist have no address, and make room as before."""
    op.execute(COLUMNS)


def downgrade() -> None:
    """Sessions make room only after five minutes."""
    op.execute("alter table pipeline.sessions drop column address, drop column used_for")
