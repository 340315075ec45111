"""A table of requests for an export, which the schedule role answers."""

from __future__ import annotations

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None
additive = True


def upgrade() -> None:
    """Create the table."""
    op.execute("""
create table pipeline.export_requests (
    id bigint generated always as identity primary key,
    requested_at timestamptz not null default clock_timestamp(),
    answered_at timestamptz,
    refusal text
);
comment on table pipeline.export_requests is
    'Requests over HTTP to export at once. The schedule role answers each within a minute, or never.';
comment on column pipeline.export_requests.refusal is 'Why the role exports nothing; null: it has begun to export.';
""")


def downgrade() -> None:
    """Drop the table."""
    op.execute("drop table pipeline.export_requests")
