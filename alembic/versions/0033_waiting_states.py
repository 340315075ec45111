"""The current state of a large table waits for changes to come together: since when it does is known."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
additive = True

WAITING = """
alter table pipeline.export_tables add column waits_since timestamptz;
create index export_tables_waiting_idx on pipeline.export_tables (lake_id, waits_since) where waits_since is not null;
comment on column pipeline.export_tables.waits_since is
    'Since when its current state lacks changes that wait because they are few for its size; null: none wait.';
"""


def upgrade() -> None:
    """No state waits."""
    op.execute(WAITING)


def downgrade() -> None:
    """The version before is to look at each table that waits, so at all of its lake."""
    op.execute(
        "update pipeline.lakes l set folded_upto = null where exists ("
        " select from pipeline.export_tables t where t.lake_id = l.id and t.waits_since is not null);"
        " alter table pipeline.export_tables drop column waits_since"
    )
