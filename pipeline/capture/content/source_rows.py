"""The rows of a table at the source: checksums of a range of keys, keys with checksums, or whole rows by their key.

Each is one short transaction, whose snapshot comes with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pipeline.capture.content import row_text
from pipeline.capture.content.compared import Compared
from pipeline.capture.content.log_state import Key, Sum
from pipeline.capture.schema_history.versions import Column
from pipeline.errors import NotComparable
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

LOCK_TIMEOUT = "2s"
_BEGIN = f"begin isolation level repeatable read read only; set local lock_timeout = '{LOCK_TIMEOUT}'"
_SNAPSHOT = "select pg_catalog.pg_current_snapshot()::text"
_LIST = sql.SQL(", ")
Bounds = tuple[Key | None, Key | None]
"""Keys after the first one and up to the second one; None: no bound."""


class SourceRows:
    """Uses the connection, from one thread."""

    def __init__(self, source: Connection, table: Compared) -> None:
        self._source, self._table = source, table
        self._rows = sql.SQL("({}) as t").format(table.rows)
        self._key = _LIST.join(sql.Identifier("t", column.name) for column in table.key)
        self._checksum = row_text.checksum(row_text.source_row(table.columns))

    def in_order(self, keys: Sequence[Key]) -> list[Key]:
        """These keys in the order of the source, which may sort texts by other rules. Raises NotComparable."""
        if not keys:
            return []
        names = [sql.Identifier("k", f"key_{place}") for place in range(len(self._table.key))]
        query = sql.SQL("select {} from {} order by {}").format(
            row_text.texts(names), _typed(keys, self._table.key), _LIST.join(names)
        )
        try:
            found = self._source.execute(query)
        except psycopg.DataError as error:
            raise NotComparable(
                f"{connections.one_line(error)} (SQLSTATE {error.sqlstate}); the log has a key from before that type"
                f" was altered: `pipeline backfill start {self._table.name}` reads its rows"
            ) from error
        return [tuple(key) for (key,) in found.fetchall()]

    def sum(self, bounds: Bounds) -> tuple[str, Sum]:
        """The rows in this range, with the snapshot."""
        query = sql.SQL("select count(*), coalesce(sum({}), 0) from {}{}").format(
            self._checksum, self._rows, self._where(bounds)
        )
        with self._snapshot() as snapshot:
            rows, checksum = self._source.execute(query).fetchone() or (0, 0)
        return snapshot, Sum(rows, int(checksum))

    def pages(self, bounds: Bounds, rows: int) -> Iterator[tuple[str, list[tuple[Key, int]]]]:
        """Keys and checksums of the rows in this range, in pages; each with its snapshot. There is always one."""
        after, upto = bounds
        while True:
            query = sql.SQL("select {}, {} from {}{} order by {} limit {}").format(
                row_text.source_texts(self._table.key),
                self._checksum,
                self._rows,
                self._where((after, upto)),
                self._key,
                sql.Literal(rows),
            )
            with self._snapshot() as snapshot:
                found = [(tuple(key), int(checksum)) for key, checksum in self._source.execute(query).fetchall()]
            yield snapshot, found
            if len(found) < rows:
                return
            after = found[-1][0]

    def by_key(self, keys: Sequence[Key]) -> tuple[str, dict[Key, list[str | None]]]:
        """The texts of the columns of those of these rows that are there, by key; with the snapshot."""
        query = sql.SQL("select {}, {} from {} where ({}) in (select {} from {})").format(
            row_text.source_texts(self._table.key),
            row_text.source_texts(self._table.columns),
            self._rows,
            self._key,
            _LIST.join(sql.Identifier(f"key_{place}") for place in range(len(self._table.key))),
            _typed(keys, self._table.key),
        )
        with self._snapshot() as snapshot:
            found = {tuple(key): texts for key, texts in self._source.execute(query).fetchall()}
        return snapshot, found

    @contextmanager
    def _snapshot(self) -> Iterator[str]:
        """A transaction of its own, in the snapshot that it yields."""
        self._source.execute(_BEGIN)
        try:
            yield str(queries.value(self._source, _SNAPSHOT))
        finally:
            if not self._source.closed:
                self._source.execute("rollback")

    def _where(self, bounds: Bounds) -> sql.Composable:
        after, upto = bounds
        found = [
            sql.SQL("({}) {} ({})").format(self._key, sql.SQL(compared), self._values(bound))
            for compared, bound in ((">", after), ("<=", upto))
            if bound is not None
        ]
        return sql.SQL(" where {}").format(sql.SQL(" and ").join(found)) if found else sql.SQL("")

    def _values(self, key: Key) -> sql.Composable:
        return _LIST.join(
            sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(column.cast))
            for text, column in zip(key, self._table.key, strict=True)
        )


def running(source: Connection) -> list[int]:
    """The transactions that no snapshot of now contains, though they have begun: the lower halves of their xids."""
    query = "select (x::text::bigint & 4294967295) from pg_snapshot_xip(pg_current_snapshot()) as x"
    return [xid for (xid,) in source.execute(query).fetchall()]


def mark(source: Connection) -> int:
    """An LSN before which everything is that any snapshot until now contains, and which the stream will reach soon.

    By a message of ours that becomes no event: without it, a stream where nobody writes would not come so far.
    """
    if queries.value(source, "select pg_catalog.pg_is_in_recovery()"):
        return int(queries.value(source, "select (pg_catalog.pg_last_wal_replay_lsn() - '0/0')::bigint"))
    with source.transaction():
        source.execute("set local synchronous_commit = local")
        return int(queries.value(source, statement("capture.replication", "mark_position")))


def _typed(keys: Sequence[Key], columns: Sequence[Column]) -> sql.Composable:
    """These keys as a table of the columns `key_0`, …, in the types of the key."""
    names = [sql.Identifier(f"key_{place}") for place in range(len(columns))]
    lists = [sql.SQL("{}::text[]").format(sql.Literal([key[place] for key in keys])) for place in range(len(columns))]
    typed = [
        sql.SQL("{0}::{1} as {0}").format(name, sql.SQL(column.cast))
        for name, column in zip(names, columns, strict=True)
    ]
    return sql.SQL("(select {} from unnest({}) as u ({})) as k").format(
        _LIST.join(typed), _LIST.join(lists), _LIST.join(names)
    )
