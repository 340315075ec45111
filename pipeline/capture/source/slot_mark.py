"""The mark of a slot: the id of the pipeline database that reads it, in a line of its publication's comment.

Without the mark, a pipeline database that was emptied would silently start again at its slot. Another pipeline
database would take over a slot while its server is down. In both cases changes that the slot has confirmed would
never come again.
"""

from __future__ import annotations

import re
from contextlib import suppress

import psycopg
from psycopg import sql

from pipeline.capture.source import slots
from pipeline.capture.source.timeline import ADOPT
from pipeline.errors import SlotTakenError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection

_MARK = re.compile(r'^slot "([a-z0-9_]+)" is read by pipeline database ([0-9a-f-]{36})$', re.MULTILINE)
_PUBLICATION_COMMENTS = """\
select p.pubname::text, pg_catalog.obj_description(p.oid, 'pg_publication')
from pg_catalog.pg_publication p
order by 1
"""
"""The comments of all publications: one of them may have the mark of a slot."""


def own_id(pipeline: Connection) -> str | None:
    """Return the id of this pipeline database; None if it lacks our tables, or is older than such ids."""
    if queries.value(pipeline, "select to_regclass('pipeline.identity') is null"):
        return None
    return str(queries.value(pipeline, "select id from pipeline.identity"))


def find_marks(source: Connection, slot: str) -> list[str]:
    """Return the ids that the slot is marked with: one or none; several if one could not be removed."""
    return [mark for comment in _comments(source).values() for name, mark in _MARK.findall(comment) if name == slot]


def require_own(source: Connection, pipeline: Connection, slot: str) -> None:
    """Raises SlotTakenError if the slot exists with the mark of another pipeline database; any may take an unmarked
    slot.
    """
    marks = find_marks(source, slot)
    if marks and own_id(pipeline) not in marks and slots.find(source, slot) is not None:
        raise SlotTakenError(
            f'slot "{slot}" is read by another pipeline database ({marks[0]}), or by this one before it was emptied; '
            f"{ADOPT}, and takes the slot over; or choose another PIPELINE_SLOT"
        )


def write_mark(source: Connection, pipeline: Connection, publication: str, slot: str) -> bool:
    """Mark the slot as ours, and remove marks of others; returns whether it is marked.

    It is not if this user does not own the publication: only the owner may comment on a publication.
    """
    ours = own_id(pipeline)
    if ours is None:
        return False
    for name, comment in _comments(source).items():
        lines = [line for line in comment.split("\n") if comment and not _is_of(line, slot)]
        if name == publication:
            lines.append(_line(slot, ours))
        new = "\n".join(lines)
        if new != comment:
            with suppress(psycopg.errors.InsufficientPrivilege):
                source.execute(sql.SQL("comment on publication {} is {}").format(sql.Identifier(name), new or None))
    return ours in find_marks(source, slot)


def marking_statement(
    source: Connection, pipeline: Connection, publication: str, slot: str, *, made: bool = False
) -> str | None:
    """Return the statement with which the publication's owner marks the slot as ours; None if there is nothing to
    mark.

    `made`: the publication will exist by then. Without a slot or an id of our database there is no mark yet.
    """
    ours, comments = own_id(pipeline), _comments(source)
    if (
        ours is None
        or not (made or (publication in comments and slots.find(source, slot)))
        or ours in find_marks(source, slot)
    ):
        return None
    lines = [line for line in comments.get(publication, "").split("\n") if line and not _is_of(line, slot)]
    text = "\n".join([*lines, _line(slot, ours)])
    return sql.SQL("comment on publication {} is {}").format(sql.Identifier(publication), text).as_string(source)


def _line(slot: str, ours: str) -> str:
    return f'slot "{slot}" is read by pipeline database {ours}'


def _is_of(line: str, slot: str) -> bool:
    found = _MARK.fullmatch(line)
    return found is not None and found[1] == slot


def _comments(source: Connection) -> dict[str, str]:
    rows = source.execute(_PUBLICATION_COMMENTS).fetchall()
    return {name: comment or "" for name, comment in rows}
