"""Folders of a lake that readers list: whether the file system can exchange them, and which ones stay as they are."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None
additive = True

FOLDERS = """
alter table pipeline.lakes add column links boolean not null default true, add column cannot_exchange text,
    add column stays jsonb not null default '{}';
comment on column pipeline.lakes.links is
    'True if folders that readers list may be symbolic links, which the next export replaces by folders if it can.';
comment on column pipeline.lakes.cannot_exchange is
    'Why the file system of the lake cannot exchange two folders; null: it can, or no export has tried yet.';
comment on column pipeline.lakes.stays is
    'Folders that could not be exchanged, though the file system can do it, each with the reason. They keep their'
    ' files.';
"""
DROPPED = "alter table pipeline.lakes drop column links, drop column cannot_exchange, drop column stays;"


def upgrade() -> None:
    """Lakes that exist may have links."""
    op.execute(FOLDERS)


def downgrade() -> None:
    """Folders stay folders."""
    op.execute(DROPPED)
