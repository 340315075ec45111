"""Rows that the pipeline database has rendered as COPY text, written into one table of the follower as sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import psycopg
from psycopg import sql

from pipeline.followers.applying import sets
from pipeline.followers.applying.relay_statements import RelayStatements
from pipeline.postgres import copy_data
from pipeline.postgres.connections import Connection

_GIVEN = sql.SQL("copy pg_temp.pipeline_given from stdin")


class NeedsCloserLook(Exception):
    """Something is with a row that only passes of a few events can name: no error yet."""


def add(follower: Connection, statements: RelayStatements, blocks: Iterable[bytes], rows: int) -> None:
    """Add new rows, so many, in the transaction that is open. Raises NeedsCloserLook."""
    if copy_data.write(follower, statements.copy_rows, blocks) != rows:
        raise NeedsCloserLook


def write(follower: Connection, statements: RelayStatements, blocks: Iterable[bytes]) -> None:
    """Write outcomes, in the transaction that is open. Raises Differs and NeedsCloserLook."""
    follower.execute(statements.make_given.encode())
    copy_data.write(follower, _GIVEN, blocks)
    given = _InTable(follower, statements)
    if given.has("insert") and not given.are_whole("insert"):
        raise NeedsCloserLook
    sets.write_given(follower, given)
    follower.execute("drop table pg_temp.pipeline_given")


class _InTable(sets.Given):
    """Outcomes in the follower's memory."""

    def __init__(self, follower: Connection, statements: RelayStatements) -> None:
        self._follower, self.statements, self._relay = follower, statements, statements
        self._whole = dict[str, bool]()
        self._look()

    def _look(self) -> None:
        self._whole = dict(self._follower.execute(self._relay.given_rows.encode()).fetchall())

    def has(self, operation: str) -> bool:
        return operation in self._whole

    def are_whole(self, operation: str) -> bool:
        return self._whole[operation]

    def send(self, query: str, operation: str) -> int | None:
        # Names may have a percent sign in them: only the raw cursor leaves it alone.
        cursor = psycopg.RawCursor(self._follower).execute(query, (operation,))
        row = cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]

    def move(self) -> None:
        self._follower.execute(self._relay.move_given.encode())
        self._look()

    def refused(self, query: str, operation: str) -> NoReturn:
        raise NeedsCloserLook
