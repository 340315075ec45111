"""A session at the source that records what it does, with the values that Postgres returns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

from psycopg import Cursor
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from pipeline.demo.verdict import RecordedTransaction, RowChange, Values, WriterRecord
from pipeline.postgres import connections

KEYS = {"customers": ("id",), "stock": ("sku",), "orders": ("id",), "order_lines": ("order_id", "line_no")}
"""Primary key columns of the shop's tables."""
FULL = {"stock"}
"""Tables whose WAL has complete old rows."""
_BOOL = 16
_BOOLS = {"t": "true", "f": "false"}
_TEXT_FORM = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres"


class RecordingSession:
    """A connection for one thread at a time. Every transaction is added to `record` once its COMMIT has returned."""

    def __init__(self, dsn: str, name: str) -> None:
        self._connection = connections.connect(dsn, "source", name=name, options=_TEXT_FORM)
        self._changes: list[RowChange] = []
        self.record = WriterRecord()
        self.savepoints = 0
        """The number of times that work was undone back to a savepoint."""

    def close(self) -> None:
        """End the session; an open transaction is rolled back."""
        self._connection.close()

    @contextmanager
    def transaction(self, *, rollback: bool = False) -> Iterator[None]:
        """Run a transaction; with `rollback` it is rolled back at its end."""
        self._changes = []
        began = time.monotonic()
        with self._connection.transaction(force_rollback=rollback):
            yield
            row = self._connection.execute("select pg_current_xact_id_if_assigned()::text::bigint").fetchone()
        ended = time.monotonic()
        if row is None or row[0] is None:
            return  # it wrote nothing, so it has no xid
        xid = row[0] % 2**32
        if rollback or not self._changes:
            self.record.silent.add(xid)
        else:
            self.record.committed.append(RecordedTransaction(xid, began, ended, tuple(self._changes)))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Set a savepoint; if the block raises, its changes are undone, at the source and in the record."""
        kept = len(self._changes)
        try:
            with self._connection.transaction():
                yield
        except BaseException:
            del self._changes[kept:]
            self.savepoints += 1
            raise

    def insert(self, table: str, **values: Any) -> Values:
        """Insert one row; returns it."""
        query = SQL("insert into shop.{} ({}) values ({}) returning *").format(
            Identifier(table), SQL(", ").join(map(Identifier, values)), SQL(", ").join(map(Placeholder, values))
        )
        (row,) = self._query(query, values)
        self._record(table, "insert", row)
        return row

    def fill(self, table: str, query: LiteralString, **values: Any) -> int:
        """Insert many rows before the server starts, keep them as `before` of the record, and return their number."""
        rows = self._query(SQL(query), values)
        for row in rows:
            self.record.before[f"shop.{table}", _key(table, row)] = row
        return len(rows)

    def update(self, table: str, assignments: LiteralString, where: LiteralString, **values: Any) -> list[Values]:
        """Update rows, each to its next version; returns them in the order in which they were written."""
        query = SQL("update shop.{} set {}, version = version + 1 where {} returning old.*, new.*").format(
            Identifier(table), SQL(assignments), SQL(where)
        )
        rows = self._query(query, values, versions=2)
        for old, new in zip(rows[::2], rows[1::2], strict=True):
            changed = {column: old[column] for column in old if old[column] != new[column]}
            self._record(table, "update", new, changed if table in FULL else None)
        return rows[1::2]

    def delete(self, table: str, where: LiteralString, **values: Any) -> list[Values]:
        """Delete rows; returns them in the order in which they were deleted."""
        rows = self._query(
            SQL("delete from shop.{} where {} returning *").format(Identifier(table), SQL(where)), values
        )
        for row in rows:
            self._record(table, "delete", row if table in FULL else {column: row[column] for column in KEYS[table]})
        return rows

    def column(self, query: LiteralString, **values: Any) -> list[Any]:
        """Return the first column of a read-only query."""
        return [row[0] for row in self._connection.execute(query, values).fetchall()]

    def _query(self, query: Composed | SQL, values: dict[str, Any], versions: int = 1) -> list[Values]:
        return list(_texts(self._connection.execute(query, values), versions))

    def _record(self, table: str, action: str, row: Values, old: Values | None = None) -> None:
        self._changes.append(RowChange(f"shop.{table}", action, _key(table, row), row, old))


def _key(table: str, row: Values) -> tuple[str, ...]:
    return tuple(row[column] or "" for column in KEYS[table])


def _texts(cursor: Cursor[Any], versions: int) -> Iterator[Values]:
    """Yield rows as the texts that Postgres sent; each result row holds `versions` of a row, one after the other."""
    result, columns = cursor.pgresult, cursor.description or []
    if result is None:
        return
    width = len(columns) // versions
    names: Sequence[tuple[int, str, bool]] = [(i, c.name, c.type_code == _BOOL) for i, c in enumerate(columns)]
    for row in range(result.ntuples):
        for start in range(0, len(columns), width):
            yield {name: _text(result.get_value(row, i), is_bool) for i, name, is_bool in names[start : start + width]}


def _text(value: bytes | None, is_bool: bool) -> str | None:
    if value is None:
        return None
    return _BOOLS[value.decode()] if is_bool else value.decode()
