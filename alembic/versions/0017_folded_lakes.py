"""Up to which seq the current states of a lake hold everything: the schedule no longer reads the ledger to know."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
additive = True

FOLDED = """
alter table pipeline.lakes add column folded_upto bigint;
comment on column pipeline.lakes.folded_upto is
    'The current states have every change up to this seq; null: unknown, so the next run finds out.';
create index exports_unfinished_idx on pipeline.exports (lake_id, id) where state in ('writing', 'publishing');
create index export_runs_running_idx on pipeline.export_runs (id) where state = 'running';
"""


def upgrade() -> None:
    """Add the column, and the indexes of what is under way."""
    op.execute(FOLDED)


def downgrade() -> None:
    """Forget it."""
    op.execute(
        "alter table pipeline.lakes drop column folded_upto; drop index pipeline.exports_unfinished_idx;"
        " drop index pipeline.export_runs_running_idx"
    )
