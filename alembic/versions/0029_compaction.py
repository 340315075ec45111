"""Small files of changes become large ones: which have been merged, and what a compaction was about to replace."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
additive = True

COMPACTION = """
create table pipeline.export_compactions (
    id bigint generated always as identity primary key,
    lake_id uuid not null,
    state text not null default 'writing',
    holder text not null,
    reason text,
    written json,
    replaced json,
    files_before integer not null,
    files_after integer not null,
    bytes bigint not null default 0,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    constraint export_compactions_state_check check (state in ('writing', 'switched', 'done', 'failed'))
);
create index export_compactions_unfinished_idx on pipeline.export_compactions (lake_id, state)
    where state in ('writing', 'switched');
create index export_compactions_newest_idx on pipeline.export_compactions (lake_id, id);
comment on table pipeline.export_compactions is
    'Merges of small files. switched: the ledger and Iceberg have the new files; the folders of days may still lack'
    ' them.';
comment on column pipeline.export_compactions.written is 'Paths of the new files; null once the merge is complete.';
comment on column pipeline.export_compactions.replaced is
    'Paths of the files that the new ones replace; null once the merge is complete.';

alter table pipeline.export_files add column day date, add column merged smallint not null default 0;
create index export_files_pending_idx on pipeline.export_files (lake_id, day) where day is not null and merged < 2;
create index export_files_day_idx on pipeline.export_files (lake_id, table_oid, day) where day is not null;
create index export_files_merged_idx on pipeline.export_files (lake_id, last_seq) where merged > 0;
comment on column pipeline.export_files.day is
    'The UTC date of its changes; null: an earlier version wrote the file, which is never merged.';
comment on column pipeline.export_files.merged is
    '0: as it was exported. 1: merged before its day had ended. 2: never merged again.';

alter table pipeline.export_datasets add column upto_seq bigint;
comment on column pipeline.export_datasets.upto_seq is
    'The seq up to which its newest part lists files; null: the seq in the name of the part.';
"""
DROPPED = """
alter table pipeline.export_datasets drop column upto_seq;
drop index pipeline.export_files_merged_idx, pipeline.export_files_day_idx, pipeline.export_files_pending_idx;
alter table pipeline.export_files drop column day, drop column merged;
drop table pipeline.export_compactions;
"""


def upgrade() -> None:
    """New columns are empty: files that are there already stay as they are."""
    op.execute(COMPACTION)


def downgrade() -> None:
    """Merged files stay in the place of those that they replaced."""
    op.execute(DROPPED)
