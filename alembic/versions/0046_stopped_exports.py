"""Runs of the export that a signal or a user has stopped are not failed, since the next run continues.

Comments of tables become shorter; their meaning stays.
"""

from __future__ import annotations

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None
additive = True

_CHECK = """
alter table pipeline.export_runs drop constraint export_runs_state_check,
    add constraint export_runs_state_check check (state in ({}))
"""
_COMMENTS = """
comment on table pipeline.backfills is
    'Readings of the rows of a table: because it joined a publication, or because a user requested it.';
comment on table pipeline.catchup_parts is
    'Parts of a backlog, for several workers: commit records begin in [from_lsn, until_lsn). Worker 0 stages'
    ' everything before them; without rows here, everything.';
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
comment on table pipeline.export_replaced is
    'Files that newer ones have replaced. They stay for a while, because a reader may still read them.';
comment on table pipeline.published_forms is
    'Definitions of tables before their first change arrives, because the catalog may differ by then: of partitions,'
    ' and keys beside a full replica identity.';
"""


def upgrade() -> None:
    """Allow the state `stopped`."""
    op.execute(_CHECK.format("'running', 'done', 'failed', 'stopped'"))
    op.execute(_COMMENTS)


def downgrade() -> None:
    """Call stopped runs failed, as the version before."""
    op.execute("update pipeline.export_runs set state = 'failed' where state = 'stopped'")
    op.execute(_CHECK.format("'running', 'done', 'failed'"))
