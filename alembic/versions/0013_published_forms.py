"""Tables as they were when they were published."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

FORMS = """
create table pipeline.published_forms (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    form jsonb not null,
    published_at timestamptz not null default now(),
    primary key (source_id, epoch, relation_oid)
);
comment on table pipeline.published_forms is
    'Tables before their first change came, where the catalog may tell another story by then: partitions that are'
    ' detached or dropped meanwhile, keys beside a full replica identity.';
"""


def upgrade() -> None:
    """Additive."""
    op.execute(FORMS)


def downgrade() -> None:
    """Nothing is lost that the log has."""
    op.execute("drop table pipeline.published_forms")
