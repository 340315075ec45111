"""Explains why a table of a follower cannot be copied or created, and the remedy. Other tables are not concerned."""

from __future__ import annotations

import psycopg

from pipeline.errors import FollowerError, PipelineError, SchemaChangeError
from pipeline.followers.admission import needed_objects
from pipeline.followers.copying import refused_rows, unfound_names
from pipeline.followers.registry import NamedTable, TableNote
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

AGAIN = "it is tried again by itself"
_LACKING = ("3F000", "42704", "42883", "42P01")
"""SQLSTATEs for a missing schema, type, function, operator, sequence, or other object."""
_PASSING = ("40001", "40P01", "55P03", "57014")
"""SQLSTATEs of errors that may disappear: a conflict with another session, or a cancelled statement."""


def is_passing(error: psycopg.Error) -> bool:
    """Return True if the error may disappear, so that the next attempt may succeed."""
    return error.sqlstate in _PASSING


def server_message(error: psycopg.Error) -> str:
    """Return the message of the follower's server, in one line."""
    return f"{connections.one_line(error)} (SQLSTATE {error.sqlstate})"


def note_of(error: PipelineError | psycopg.Error, follower: Connection, source: Connection, oid: int) -> TableNote:
    """Return a note on the table: why it is stopped, and what an administrator of the follower can do.

    `oid`: the table's oid at the source. Neither session may have an open transaction.
    """
    helps = error.remedy if isinstance(error, SchemaChangeError) else None
    if (known := unfound_names.from_error(error) or refused_rows.from_error(error)) is not None:
        helps = known.remedy(follower, source) or helps
    elif isinstance(error.__cause__, psycopg.Error) and error.__cause__.sqlstate in _LACKING:
        missing = needed_objects.statements(source, follower, [oid])
        helps = f"run there: `{'; '.join(missing)}`" if missing else helps
    remedy = AGAIN if helps is None else f"{helps}; {AGAIN}"
    if isinstance(error, psycopg.Error):
        return TableNote(
            f"cannot be copied: the follower refuses a statement: {server_message(error)}", remedy, "stopped"
        )
    return TableNote(f"cannot be copied: {error}", remedy, "stopped")


def creation_error(table: NamedTable | None, error: psycopg.Error, what: str = "") -> FollowerError:
    """Return the error that reports that a follower refuses to create a table, or a part of it.

    `table`: None if the table is unknown. `what`: the part, such as "indexes of "; "" for the table itself.
    """
    name = "tables" if table is None else f"{table.table_schema}.{table.table_name}"
    made = FollowerError(
        f"--schema create: the follower refuses to create {what}{name}: {server_message(error)}; create at the follower"
        " what is missing"
    )
    made.__cause__ = error
    return made
