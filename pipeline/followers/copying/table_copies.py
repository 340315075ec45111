"""Fills the tables of a follower from the source, several in parallel, each in one transaction at both sides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import psycopg
from psycopg import sql

from pipeline.errors import ApplierOvertakenError, FollowerError, PipelineError, StatementRefusedError
from pipeline.followers.applying import followed_tables, truncates
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.copying import copies, refusals
from pipeline.followers.copying.source_tables import (
    LOCK_TIMEOUT,
    CopyDelayedError,
    SourceRelation,
    SourceTables,
    describe_holder,
)
from pipeline.followers.registry import NamedTable, TableNote
from pipeline.postgres import connections, copy_data, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

REST_SECONDS = 0.2
"""The pause before the next attempt to copy a table."""
_COMMA = sql.SQL(", ")


class CopyInterruptedError(Exception):
    """The copy is no longer wanted. It is rolled back, as if it had not begun."""


class TablePreparer(Protocol):
    """Prepares tables for their copies, as `FirstCopyPreparer` of `pipeline.followers.schema_changes` does."""

    def align(
        self, source: Connection, follower: Connection, table: NamedTable, published: Collection[str]
    ) -> NamedTable: ...
    def is_called(self, follower: Connection, table: NamedTable) -> bool: ...
    def require_types(self, source: Connection, follower: Connection, table: NamedTable) -> None: ...


class TableCopies:
    """Copies tables of one follower, over a session with the settings of an applier.

    Other threads may copy other tables at the same time.
    """

    def __init__(
        self,
        source: SourceTables,
        follower: Connection,
        here: FollowerPosition,
        preparer: TablePreparer,
        *,
        truncate: bool,
        go_on: Callable[[], bool],
        say: Callable[[NamedTable, TableNote | None], None],
    ) -> None:
        """`here`: the follower's position. `truncate`: empty tables that have rows, instead of refusing them.

        `go_on` returns False once the copy must end; it is called between blocks. `say` is called with each table that
        is copied, and with a note if the table has to wait.
        """
        self._source, self._follower, self._of, self._truncate = source, follower, here, truncate
        self._preparer, self._go_on, self._say = preparer, go_on, say
        self._refused = dict[NamedTable, TableNote]()

    def make(self, tables: SimpleQueue[NamedTable], rest: Callable[[float], Any]) -> dict[NamedTable, TableNote]:
        """Copy tables from the queue until it is empty; returns the refused tables, and why.

        `rest` waits for a number of seconds. Raises CopyInterruptedError, ApplierOvertakenError, and errors that end a
        connection.
        """
        pending: list[NamedTable] = []
        while (fresh := _take_from(tables)) or pending:
            pending += fresh
            waiting = [table for table in pending if not self._try_copy(table)]
            if waiting == pending and not fresh:
                rest(REST_SECONDS)
            pending = waiting
        return self._refused

    def _try_copy(self, table: NamedTable) -> bool:
        """Try to copy a table; returns False if it must be tried again, True if it was copied or refused."""
        self._require_wanted()
        try:
            relations = self._source.relations_at_rest(table.table_oid)
            self._say(table, None)
            published = {name for each in relations for name in each.columns or ()}
            if relations:
                table = self._preparer.align(self._source.connection, self._follower, table, published)
            self._copy(table, relations)
        except CopyDelayedError as error:
            self._say(table, TableNote(str(error)))
            return False
        except ApplierOvertakenError:
            raise
        except (FollowerError, StatementRefusedError) as error:
            self._refuse(table, error)
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            if refusals.is_passing(error):
                self._say(table, TableNote(refusals.server_message(error)))
                return False
            self._refuse(table, error)
        return True

    def _refuse(self, table: NamedTable, error: PipelineError | psycopg.Error) -> None:
        self._refused[table] = note = refusals.note_of(error, self._follower, self._source.connection, table.table_oid)
        self._say(table, note)

    def _copy(self, table: NamedTable, relations: Sequence[SourceRelation]) -> None:
        identifier = sql.Identifier(table.table_schema, table.table_name)
        with self._follower.transaction():
            copies.claim(self._follower, self._of, table.table_oid)
            if not self._preparer.is_called(self._follower, table):
                raise CopyDelayedError("the table was renamed just now")
            there = describe_existing(self._follower, table)
            # Lock the follower's table first: while this waits, no session has to wait at the source.
            self._empty(table, identifier, partitioned=there["partitioned"])
            columns = [copied_columns(table, relation, there) for relation in relations]
            with self._source.reading(table.table_oid, relations) as copy:
                rows = sum(
                    copy_rows(self._source, relation, names, self._follower, identifier, self._require_wanted)
                    for relation, names in zip(relations, columns, strict=True)
                )
            if relations:
                self._preparer.require_types(self._source.connection, self._follower, table)
            copies.finish(self._follower, self._of, table.table_oid, copy, rows)

    def _empty(self, table: NamedTable, identifier: sql.Identifier, *, partitioned: bool) -> None:
        """Empty the table, except tables that inherit from it."""
        rows = identifier if partitioned else sql.SQL("only {}").format(identifier)
        if not self._truncate:
            require_empty(self._follower, table, partitioned=partitioned)
            return
        if not queries.value(self._follower, sql.SQL("select exists (select from {})").format(rows)):
            return
        oid = queries.value(
            self._follower,
            statement("followers.copying", "follower_oid"),
            {"table": identifier.as_string(self._follower)},
        )
        try:
            with self._follower.transaction(), queries.lock_timeout(self._follower, LOCK_TIMEOUT):
                truncates.truncate_tables(self._follower, [rows])
        except psycopg.errors.LockNotAvailable as error:
            raise CopyDelayedError(
                f"waits for {describe_holder(self._follower, oid)}, which uses it at the follower"
            ) from error

    def _require_wanted(self) -> None:
        if not self._go_on():
            raise CopyInterruptedError


def require_empty(follower: Connection, table: NamedTable, *, partitioned: bool) -> None:
    """Raise FollowerError if the follower's table has rows. Tables that inherit from it may have rows."""
    identifier = sql.Identifier(table.table_schema, table.table_name)
    rows = identifier if partitioned else sql.SQL("only {}").format(identifier)
    if queries.value(follower, sql.SQL("select exists (select from {})").format(rows)):
        raise FollowerError(
            f"table {_name(table)} of the follower has rows: empty it there, or remove the follower and add it again"
            " with --truncate"
        )


def pending(follower: Connection, here: FollowerPosition, tables: Iterable[NamedTable]) -> list[NamedTable]:
    """Return the tables whose copies are not finished yet."""
    known = copies.find(follower, here)
    return [table for table in tables if table.table_oid in known and known[table.table_oid] is None]


def _take_from(tables: SimpleQueue[NamedTable]) -> list[NamedTable]:
    try:
        return [tables.get_nowait()]
    except Empty:
        return []


def describe_existing(follower: Connection, table: NamedTable) -> dict[str, Any]:
    """Return the description of the follower's table. Raises FollowerError if the table does not exist."""
    name = table.table_schema, table.table_name
    there = followed_tables.describe(follower, [name]).get(name)
    if there is None:
        raise FollowerError(f"the follower has no table {_name(table)}: make it there, or leave it out")
    return there


def copied_columns(table: NamedTable, relation: SourceRelation, description: Mapping[str, Any]) -> list[str]:
    """Return the published columns of a relation that are copied: all except those that the follower generates.

    Raises FollowerError if the follower lacks a column.
    """
    generated = {column["name"]: column["generated"] for column in description["columns"]}
    if missing := [name for name in relation.columns or () if name not in generated]:
        raise FollowerError(f"table {_name(table)} of the follower has no column {', '.join(missing)}: add it there")
    return [name for name in relation.columns or () if not generated[name]]


def copy_rows(
    source: SourceTables,
    relation: SourceRelation,
    columns: Sequence[str],
    follower: Connection,
    into: sql.Composable,
    require_wanted: Callable[[], None],
) -> int:
    """Copy the rows of one relation into a table of the follower; returns their number.

    `require_wanted` is called before each block, and its errors end the copy.
    """

    def wanted(blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            require_wanted()
            yield block

    listed = sql.SQL("({})").format(_COMMA.join(map(sql.Identifier, columns))) if columns else sql.SQL("")
    query = sql.SQL("copy {} {} from stdin").format(into, listed)
    with closing(source.rows(relation, columns)) as blocks:
        return copy_data.write_blocks(follower, query, wanted(blocks))


def _name(table: NamedTable) -> str:
    return f"{table.table_schema}.{table.table_name}"
