"""Records which SQL functions are installed: they are not migrations, but files that every boot compares."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

INSTALLED = """
create table pipeline.installed_functions (
    only_one boolean primary key default true check (only_one),
    version integer not null,
    digest text not null,
    installed_at timestamptz not null default now()
);
comment on table pipeline.installed_functions is
    'The version of the SQL functions, and the digest of their texts. No row: they are older than this table.';
"""


def upgrade() -> None:
    """Add the table; the functions themselves are installed after the migrations."""
    op.execute(INSTALLED)


def downgrade() -> None:
    """Drop the table; the functions stay unchanged."""
    op.execute("drop table pipeline.installed_functions")
