"""Records since when each table is captured, and what the log lacks of it; and where no table matches the settings."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

CAPTURED = """
create table pipeline.captured_tables (
    id bigint generated always as identity primary key,
    source_id uuid not null,
    epoch integer not null,
    table_oid bigint not null,
    table_name text not null,
    joined_at timestamptz not null default now(),
    joined_lsn bigint not null,
    was_empty boolean,
    left_at timestamptz,
    left_lsn bigint,
    left_epoch integer
);
create unique index captured_tables_open on pipeline.captured_tables (source_id, table_oid) where left_at is null;
comment on table pipeline.captured_tables is
    'The times during which a table was in a publication. Changes between two such times are not in the log.';
comment on column pipeline.captured_tables.epoch is 'The epoch of joined_lsn.';
comment on column pipeline.captured_tables.joined_lsn is 'Changes from this LSN on are captured.';
comment on column pipeline.captured_tables.was_empty is
    'True if the table had no rows when it joined; null: unknown. Rows that it had are not in the log.';
comment on column pipeline.captured_tables.left_lsn is
    'Changes after this LSN are not captured; null: the table is still in a publication.';
alter table pipeline.sources add column unmatched text;
comment on column pipeline.sources.unmatched is
    'Why nothing can be captured: PIPELINE_TABLES matches no existing table. Null: it matches some.';
"""


def upgrade() -> None:
    """Tables that are captured already get no row: when they joined is not known."""
    op.execute(CAPTURED)


def downgrade() -> None:
    """Forget it."""
    op.execute("alter table pipeline.sources drop column unmatched; drop table pipeline.captured_tables")
