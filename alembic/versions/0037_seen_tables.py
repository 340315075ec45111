"""When each table of a source was seen first: rows of one that is newer than a client are inserts for that client."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
additive = True

TABLE = """
create table pipeline.seen_tables (
    source_id uuid not null,
    epoch integer not null,
    table_oid bigint not null,
    first_seen_at timestamptz,
    primary key (source_id, epoch, table_oid)
);
comment on table pipeline.seen_tables is
    'Tables that the source has had in an epoch, captured or not. A row of oid 0 says that the catalog was checked.';
comment on column pipeline.seen_tables.first_seen_at is
    'When a check first found it; null: it existed before the slot, or before the epoch.';
"""


def upgrade() -> None:
    """Nothing is seen: what the first look of the new version finds counts as old."""
    op.execute(TABLE)


def downgrade() -> None:
    """Forget it."""
    op.execute("drop table pipeline.seen_tables")
