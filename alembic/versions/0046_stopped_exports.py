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
    'Every reading of the rows of a table: when the table joined, or when a user asked.';
comment on table pipeline.catchup_parts is
    'A backlog that several workers stage at once: transactions whose commit records begin in [from_lsn, until_lsn).'
    ' Worker 0 does everything else.';
comment on table pipeline.consumer_touches is
    'Changes and items that the shuffler could not settle, since the open transaction of a client holds an item.';
comment on table pipeline.export_replaced is
    'Files that a newer one has replaced: they stay for a while for queries that still read them.';
comment on table pipeline.published_forms is
    'Tables before their first change arrived, if the catalog may have changed since: dropped partitions, keys beside a'
    ' full replica identity.';
"""


def upgrade() -> None:
    """Allow the state `stopped`."""
    op.execute(_CHECK.format("'running', 'done', 'failed', 'stopped'"))
    op.execute(_COMMENTS)


def downgrade() -> None:
    """Call stopped runs failed, as the version before."""
    op.execute("update pipeline.export_runs set state = 'failed' where state = 'stopped'")
    op.execute(_CHECK.format("'running', 'done', 'failed'"))
