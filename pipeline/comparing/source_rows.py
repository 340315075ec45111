"""Read rows of a table at the source: the checksum of a range of keys, keys with checksums, or complete rows by key.

Each query is one short transaction, and its snapshot is returned with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pipeline.comparing import compared_table, partition_bounds, row_text
from pipeline.comparing.compared_table import ComparableTable
from pipeline.comparing.log_state import Key, PartChecksum
from pipeline.errors import NotComparableError
from pipeline.postgres import connections, key_comparison, queries, reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.postgres.session_settings import SNAPSHOT

LOCK_TIMEOUT = "2s"
_ALTERED = "the table was altered while it was compared; run the command again"
Bounds = tuple[Key | None, Key | None]
"""A range of keys: after the first one and up to the second one; None: no bound."""
_REPLAYED_POSITION = "select (pg_catalog.pg_last_wal_replay_lsn() - '0/0')::pg_catalog.int8"
"""The place in the WAL up to which a standby has replayed it."""
_RUNNING_TRANSACTIONS = """\
select x::pg_catalog.text::pg_catalog.int8 & 4294967295
from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) x
"""
"""The running transactions, which no snapshot of now contains: the lower halves of their xids."""


class TableAlteredError(NotComparableError):
    """The table is no longer what it was when the comparison began; another comparison may succeed."""


class SourceRows:
    """Reads rows of one table over the connection, from one thread."""

    def __init__(self, source: Connection, table: ComparableTable) -> None:
        """Raises NotComparableError if comparing its keys may run code of an owner."""
        self._source, self._table = source, table
        with reading_session.transaction(source, SNAPSHOT):
            self._key = compared_table.comparison(source, table)
        self._rows = sql.SQL("({}) as t").format(table.rows)
        self._checksum = row_text.checksum(row_text.source_row(table.columns))

    def in_order(self, keys: Sequence[Key]) -> list[Key]:
        """Return these keys in the order of the source, which may sort texts differently. Raises NotComparableError."""
        if not keys:
            return []
        values = self._key.table_columns()
        query = sql.SQL("select {} from {} order by {}").format(
            row_text.texts(values), self._key.as_table(keys), self._key.order(values)
        )
        try:
            with reading_session.transaction(self._source, SNAPSHOT), key_comparison.no_ambiguity():
                self._require_same_key()
                found = self._source.execute(query).fetchall()
        except psycopg.DataError as error:
            raise NotComparableError(
                f"{connections.one_line(error)} (SQLSTATE {error.sqlstate}); the log has a key from before that type"
                f" was altered: `pipeline backfill start {self._table.name}` reads its rows"
            ) from error
        return [tuple(key) for (key,) in found]

    def sum(self, bounds: Bounds) -> tuple[str, PartChecksum]:
        """Return the snapshot, and the number and checksum of the rows in this range."""
        query = sql.SQL("select pg_catalog.count(*), coalesce(pg_catalog.sum({}), 0) from {}{}").format(
            self._checksum, self._rows, self._where(bounds)
        )
        with self._snapshot() as snapshot:
            rows, checksum = self._source.execute(query).fetchone() or (0, 0)
        return snapshot, PartChecksum(rows, int(checksum))

    def pages(self, bounds: Bounds, rows: int) -> Iterator[tuple[str, list[tuple[Key, int]]]]:
        """Yield keys and checksums of the rows in this range, in at least one page, each with its snapshot."""
        after, upto = bounds
        while True:
            query = sql.SQL("select {}, {} from {}{} order by {} limit {}").format(
                row_text.source_texts(self._table.key),
                self._checksum,
                self._rows,
                self._where((after, upto)),
                self._key.order(),
                sql.Literal(rows),
            )
            with self._snapshot() as snapshot:
                found = [(tuple(key), int(checksum)) for key, checksum in self._source.execute(query).fetchall()]
            yield snapshot, found
            if len(found) < rows:
                return
            after = found[-1][0]

    def by_key(self, keys: Sequence[Key]) -> tuple[str, dict[Key, list[str | None]]]:
        """Return the snapshot, and the texts of the columns of those rows that exist, by key."""
        query = sql.SQL("select {}, {} from {} where {}").format(
            row_text.source_texts(self._table.key),
            row_text.source_texts(self._table.columns),
            self._rows,
            self._key.is_one_of(keys),
        )
        with self._snapshot() as snapshot:
            found = {tuple(key): texts for key, texts in self._source.execute(query).fetchall()}
        return snapshot, found

    @contextmanager
    def _snapshot(self) -> Iterator[str]:
        """Run the block in one transaction, and yield its snapshot.

        Raises NotComparableError if the table was altered.
        """
        relations = self._table.relations
        names = [queries.trusted(each.name) for each in relations]
        values = {"oids": [each.oid for each in relations], "shapes": [each.shape for each in relations]}
        with reading_session.transaction(self._source, SNAPSHOT, lock_timeout=LOCK_TIMEOUT):
            if relations:
                try:
                    reading_session.lock(self._source, names, SNAPSHOT, LOCK_TIMEOUT)
                except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
                    raise TableAlteredError(_ALTERED) from error
            found = self._source.execute(statement("comparing", "begin_look"), values).fetchone()
            snapshot, unaltered = found or ("", False)
            if not unaltered:
                raise TableAlteredError(_ALTERED)
            self._require_same_key()
            with key_comparison.no_ambiguity():
                yield snapshot

    def _require_same_key(self) -> None:
        """Raise an error if the key is compared differently now: an owner may rename a type or add a cast.

        Neither changes the table itself, so the check of its shape does not find them.
        """
        if compared_table.comparison(self._source, self._table) != self._key:
            raise TableAlteredError(_ALTERED)

    def _where(self, bounds: Bounds) -> sql.Composable:
        after, upto = bounds
        found = [] if after is None else [self._key.bounded(">", after)]
        found += [] if upto is None else [self._key.bounded("<=", upto)]
        if self._table.within is not None:
            values = [sql.Identifier("t", column.name) for column in self._table.key]
            found.append(partition_bounds.holds(self._table.within, self._table.key, values))
        return sql.SQL(" where {}").format(sql.SQL(" and ").join(found)) if found else sql.SQL("")


def running(source: Connection) -> list[int]:
    """Return the lower halves of the xids of running transactions, which no current snapshot contains."""
    with reading_session.transaction(source, SNAPSHOT):
        return [xid for (xid,) in source.execute(_RUNNING_TRANSACTIONS).fetchall()]


def mark(source: Connection) -> int:
    """Return an LSN that the stream reaches soon, and that is after everything that any current snapshot contains.

    Writes a message that becomes no event: without writes at the source, the stream would not get there.
    """
    with reading_session.transaction(source, SNAPSHOT, synchronous_commit="local"):
        if queries.value(source, "select pg_catalog.pg_is_in_recovery()"):
            return int(queries.value(source, _REPLAYED_POSITION))
        marked = int(queries.value(source, statement("comparing", "mark_position")))
        source.execute("commit")
        return marked
