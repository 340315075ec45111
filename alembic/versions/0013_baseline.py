"""The whole schema of the server, as thirteen migrations had made it: DDL by subject, in the folder of this name."""

from __future__ import annotations

from pathlib import Path

from alembic import context, op

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None

FOLDER = Path(__file__).with_suffix("")
DEFAULT = "public.sequin_events"
SUBJECTS = ("sources", "schema_history", "staging", "log", "consumers", "exports", "lag", "roles")
HAS_CURRENT_COLUMNS = """
select count(*) = 5 from pg_attribute
where attrelid = to_regclass('public.sequin_events')
    and attname in ('commit_lsn', 'commit_idx', 'source_epoch', 'exact', 'metadata') and not attisdropped
"""
IS_OURS = """
select pg_get_partkeydef(c.oid) = 'RANGE (seq)' and not exists (
    select from pg_attribute a where a.attrelid = c.oid and a.attname = 'id' and not a.attisdropped)
from pg_class c where c.oid = to_regclass('public.sequin_events')
"""
"""Every legacy table has a column `id`."""


def upgrade() -> None:
    """Create the whole schema, and migrate a legacy sequin_events.

    If events go to another table, an existing sequin_events may belong to another program, and is left unchanged.
    """
    for subject in SUBJECTS:
        run(subject)
    offline = context.is_offline_mode()
    if offline or not holds("select to_regclass('public.sequin_events') is not null"):
        run("sequin_events")
    elif context.config.attributes.get("events_table", DEFAULT) == DEFAULT:
        context.config.attributes["migrate_legacy_table"](op.get_bind())
    run("events_view" if offline or holds(HAS_CURRENT_COLUMNS) else "empty_events_view")


def downgrade() -> None:
    """Remove the whole schema, the events included; a legacy events table stays, with its rows."""
    run("remove")
    if context.is_offline_mode() or holds(IS_OURS):
        op.execute("drop table public.sequin_events cascade")


def run(name: str) -> None:
    """Execute the statements of a file unchanged: colons and percent signs are part of the text."""
    text = FOLDER.joinpath(f"{name}.sql").read_text("utf-8")
    if context.is_offline_mode():
        op.get_context().impl.static_output(text)
    else:
        op.get_bind().exec_driver_sql(text, execution_options={"no_parameters": True})


def holds(question: str) -> bool:
    """Return True if the database answers the question with true."""
    return bool(op.get_bind().exec_driver_sql(question).scalar())
