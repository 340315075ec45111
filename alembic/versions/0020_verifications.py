"""The table of results of content verifications."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
additive = True

VERIFICATIONS = """
create table pipeline.verifications (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources (id),
    asked_by text not null check (asked_by in ('command', 'schedule')),
    started_at timestamptz not null,
    finished_at timestamptz not null default now(),
    share double precision not null,
    tables_compared integer not null,
    tables_refused integer not null,
    rows bigint not null,
    differing bigint not null,
    unknown bigint not null,
    verified_through bigint,
    tables jsonb not null
);
create index verifications_source_idx on pipeline.verifications (source_id, id);
comment on table pipeline.verifications is 'The newest comparisons of the log''s content with the source.';
comment on column pipeline.verifications.share is 'The share of each table''s rows that was compared; 1: all.';
comment on column pipeline.verifications.differing is 'Rows that differ between the source and the log.';
comment on column pipeline.verifications.unknown is
    'Rows that could not be compared completely, because the log lacks values of them.';
comment on column pipeline.verifications.verified_through is
    'Everything that committed before this LSN of the source was compared; null: nothing was.';
comment on column pipeline.verifications.tables is 'For each table its name, state, reason, and numbers; no values.';
"""


def upgrade() -> None:
    """Add the table."""
    op.execute(VERIFICATIONS)


def downgrade() -> None:
    """Forget what was found."""
    op.execute("drop table pipeline.verifications")
