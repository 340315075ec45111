"""The relation history knows a column by more than its name, and which tables were rewritten without events."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FORMS = """
alter table pipeline.relations add column fingerprint jsonb;
comment on column pipeline.relations.columns is
    'Per column also attnum, and names: what the log calls its values, from which commit_lsn and commit_idx on.';
comment on column pipeline.relations.fingerprint is
    'File and versions of pg_attribute rows as last read for this form: what tells a rewritten table.';
"""

REWRITES = """
create table pipeline.rewrites (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    relation_oid bigint not null,
    table_schema text not null,
    table_name text not null,
    columns text[] not null,
    kind text not null check (kind in ('type', 'default', 'values')),
    version text not null,
    from_lsn bigint,
    from_idx integer,
    found_at timestamptz not null default now(),
    settled_at timestamptz,
    unique (source_id, epoch, relation_oid, kind, version)
);
comment on table pipeline.rewrites is
    'Tables whose values DDL changed without an event: rows not written since are in the log as they were before.';
comment on column pipeline.rewrites.from_lsn is
    'commit_lsn of the first change after it, from_idx its commit_idx; null while none has come.';
comment on column pipeline.rewrites.version is 'What tells it from another rewrite of these columns.';
"""


def upgrade() -> None:
    """Additive."""
    op.execute(FORMS)
    op.execute(REWRITES)


def downgrade() -> None:
    """Forget what was rewritten."""
    op.execute("""
        drop table pipeline.rewrites;
        alter table pipeline.relations drop column fingerprint;
        comment on column pipeline.relations.columns is null;
    """)
