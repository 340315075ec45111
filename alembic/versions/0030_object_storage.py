"""A lake in a bucket: nothing there is listed, so the ledger knows what was written before it is."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
additive = True

WRITTEN = """
create table pipeline.export_written (
    lake_id uuid not null,
    path text not null,
    export_id bigint,
    state_id bigint,
    primary key (lake_id, path)
);
comment on table pipeline.export_written is
    'Objects that a run of the export writes to a bucket. After the run, those that nothing lists are removed.';
comment on column pipeline.export_written.state_id is
    'The version of a state to which the object belongs; null: it belongs to an export.';
"""


def upgrade() -> None:
    """Empty: lakes that are there are in folders."""
    op.execute(WRITTEN)


def downgrade() -> None:
    """Lakes in buckets are unknown to the version before."""
    op.execute("drop table pipeline.export_written")
