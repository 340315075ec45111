"""Tables that begin or cease to inherit from others: no event says so, and followers do the same."""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0044"
branch_labels = None
depends_on = None
additive = True

TABLE = """
create table pipeline.inheritance (
    id bigint generated always as identity primary key,
    source_id uuid not null,
    epoch integer not null,
    child_oid bigint not null,
    parent_oid bigint not null,
    inherits boolean not null,
    seen_lsn bigint not null,
    seen_at timestamptz
);
create index inheritance_child on pipeline.inheritance (source_id, child_oid, parent_oid);
comment on table pipeline.inheritance is
    'Tables that began or ceased to inherit from another one. A row of oid 0 says that the catalog was checked.';
comment on column pipeline.inheritance.seen_lsn is
    'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';
comment on column pipeline.inheritance.seen_at is 'When a check found it; null: the first check found it.';
"""


def upgrade() -> None:
    """Create the table; inheritance that the first check of the new version finds counts as older."""
    op.execute(TABLE)


def downgrade() -> None:
    """Forget it."""
    op.execute("drop table pipeline.inheritance")
