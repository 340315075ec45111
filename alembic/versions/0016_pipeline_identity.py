"""An id of the pipeline database itself: the slot at the source carries it as its mark."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

IDENTITY = """
create table pipeline.identity (
    only_one boolean primary key default true check (only_one),
    id uuid not null default gen_random_uuid()
);
comment on table pipeline.identity is
    'The id of this pipeline database. The comment of a publication at the source names it, so that the slot belongs'
    ' to this database.';
insert into pipeline.identity default values;
"""


def upgrade() -> None:
    """Make the id."""
    op.execute(IDENTITY)


def downgrade() -> None:
    """Forget it; a mark at the source stays."""
    op.execute("drop table pipeline.identity")
