"""Read one range of a table at the source, in one short transaction, and stage its rows.

The order of the steps makes the rows exact (docs/internals/decisions/0011-reading-beside-the-stream.md): lock,
snapshot, rows, marker. Then the rows become durable in the pipeline database. Then the transaction at the source
commits, with its marker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

import psycopg
from psycopg import sql

from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.capture.source import captured_now
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import PipelineError
from pipeline.log.staging import rows
from pipeline.log.staging.range_writer import RangeWriter
from pipeline.log.staging.ranges import ClaimedRange, RangeReadResult
from pipeline.postgres import connections, copy_text, key_comparison, queries, reading_session
from pipeline.postgres.connections import Connection
from pipeline.postgres.key_comparison import KeyComparison
from pipeline.postgres.queries import statement
from pipeline.postgres.session_settings import SNAPSHOT
from pipeline.snapshots.comparing import NOTHING
from pipeline.snapshots.conditions import check
from pipeline.snapshots.departures import KeyDepartures
from pipeline.snapshots.samples import SeqSampler
from pipeline.snapshots.shapes import (
    LockedRelation,
    PlannedTableChangedError,
    RelationInspector,
    RelationShape,
    TableUnreadableError,
    without_key,
)
from pipeline.wal.markers import RANGE_MARKER
from pipeline.wal.messages import UNCHANGED, Row

LOCK_TIMEOUT = "2s"
CONDITION_SECONDS = 60
"""Seconds that reading a range with a condition may take: a user's condition may be slow for each row."""
STAGE_BYTES = 1_000_000
"""About how many bytes of rows are sent to the pipeline database at once."""
_FAILED = (psycopg.pq.TransactionStatus.INERROR, psycopg.pq.TransactionStatus.UNKNOWN)
"""States of a connection on which a statement has failed, or which is closed."""
_TIMEOUTS = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)
_PASSING = ("08", "40", "53", "55", "57")
"""SQLSTATE classes of errors that a later attempt may not meet."""
_RAISE = "raise that timeout for this role"
_OLD_KEY = "; the log has a key from before that type was altered: start it again without --differences"
_HEAD = rows.transaction_head(0)
_CHANGE = rows.change_head(0, 0, 0, b"read")
_DELETE = rows.change_head(0, 0, 0, b"delete")


class TableReadBlockedError(PipelineError):
    """The table cannot be read now: a session locks it, or its updates are not captured yet."""


class RangeReadTimeoutError(PipelineError):
    """A timeout ended the transaction; a shorter range may be read in time."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


class RangeReader:
    """Reads ranges over one connection to the source, one at a time."""

    def __init__(self, source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
        """`pipeline` reads the log and the stored state of the source."""
        self._source, self._pipeline = source, pipeline
        self._stored = stored
        self._samples = SeqSampler(source, pipeline, stored)
        self._shapes = RelationInspector(source, pipeline, stored)
        self._departures = KeyDepartures(pipeline, stored)

    def read(
        self, taken: ClaimedRange, staging: RangeWriter, since: Mapping[str, int], condition: str | None = None
    ) -> None:
        """Read the range and stage its rows, unless the range was taken away.

        `since`: the newest seqs before the backfill began.

        `condition`: a user's text. It is checked in the transaction that reads, because a table's owner may alter
        columns, or add a cast, at any time. Raises TableReadBlockedError, PlannedTableChangedError,
        RangeReadTimeoutError, TableUnreadableError, NotComparableError or ConditionRefusedError; then nothing is
        staged, and no marker has committed.
        """
        with reading_session.transaction(self._source, SNAPSHOT):
            self._samples.take_sample()
            name = self._shapes.name(taken.relation_oid)
            limit = None if condition is None else self._limit()
        with self._transaction(taken, limit):
            departed = None
            if taken.differences is None:
                facts, shape = self._read_rows(taken, name, staging, condition)
            else:
                with key_comparison.no_ambiguity():
                    facts, shape, departed = self._read_keys(taken, staging)
            marked = self._source.execute(
                "select pg_catalog.pg_logical_emit_message(true, %s, %s), pg_catalog.pg_current_xact_id()::text",
                (RANGE_MARKER, str(taken.token)),
            ).fetchone()
            assert marked is not None  # noqa: S101  function calls
            seqs = self._samples.before(facts.snapshot, since)
            version = shape.description.to_json()
            read = RangeReadResult(staging.rows, facts.snapshot, seqs, version, shape.by_key, marked[1], departed)
            self._source.execute("commit" if staging.store(read) else "rollback")

    def _read_rows(
        self, taken: ClaimedRange, name: str, staging: RangeWriter, condition: str | None
    ) -> tuple[LockedRelation, RelationShape]:
        """Stage the rows of one relation."""
        self._lock(taken, [name])
        facts = self._shapes.facts(taken.relation_oid, taken.table_oid, name, taken.file)
        shape = self._shapes.shape(taken.relation_oid, facts)
        if not shape.by_key and (taken.keys is not None or taken.from_block or taken.until_block):
            raise PlannedTableChangedError(without_key(name, taken.backfill_id))
        # Until then the stream lacks updates of these rows, so reading them by their keys would miss changes.
        if shape.by_key and captured_now.is_about_to_be_keyed(
            self._source, self._pipeline, self._stored, taken.table_oid, taken.relation_oid
        ):
            raise TableReadBlockedError("the table has a key now: the backfill waits until its updates are captured")
        chosen = [shape.published]
        if taken.keys is not None:  # read again because the log lacks values of these rows
            key = key_comparison.read_comparison(
                self._source, taken.relation_oid, shape.version.key_columns, by_text=True
            )
            chosen.append(key.is_one_of(taken.keys))
        if condition is not None:
            chosen.append(check.trusted(self._source, condition, taken.table_oid))
        query = range_query(taken, name, shape.version, chosen)
        self._copy(query, shape, staging)
        return facts, shape

    def _read_keys(
        self, taken: ClaimedRange, staging: RangeWriter
    ) -> tuple[LockedRelation, RelationShape, dict[str, Any]]:
        """Stage the rows with these keys, from all partitions of the table, and a delete for each key without a row."""
        leaves = self._look_before(taken)
        self._lock(taken, [name for _, name in leaves])
        found: set[str] = set()
        read = []
        for oid, name in leaves:
            facts = self._shapes.facts(oid, taken.table_oid, name)
            shape = self._shapes.shape(oid, facts)
            if not shape.by_key or any(len(key) != len(shape.version.key_columns) for key in taken.keys or ()):
                raise TableUnreadableError(
                    f"{name} has another key than when it was compared; start the backfill again"
                )
            comparison = key_comparison.read_comparison(self._source, oid, shape.version.key_columns)
            chosen = comparison.is_one_of(taken.keys or ())
            self._copy(range_query(taken, name, shape.version, [chosen, shape.published]), shape, staging, found)
            read.append((facts, shape, comparison))
        if self._shapes.leaves(taken.table_oid) != leaves:
            raise PlannedTableChangedError("the table has other partitions now")
        facts, shape, comparison = read[0]
        found |= self._stage_missing(taken.keys or (), comparison, shape, staging, found)
        return facts, shape, self._departures.select(taken.table_oid, shape.version, found)

    def _look_before(self, taken: ClaimedRange) -> list[tuple[int, str]]:
        """Return the relations to read, and read the log, which may take long.

        Both happen before the transaction that reads, in which no query may come before the locks.
        """
        leaves = self._shapes.leaves(taken.table_oid)
        if not leaves:
            name = self._shapes.name(taken.table_oid)
            raise TableUnreadableError(f"{name}: {NOTHING}")
        oid, name = leaves[0]
        version = self._shapes.shape(oid, self._shapes.facts(oid, taken.table_oid, name)).version
        self._source.execute("rollback")
        self._departures.read_new_events(taken.table_oid, version)
        self._begin()
        return leaves

    def _stage_missing(
        self,
        keys: Sequence[Sequence[str]],
        comparison: KeyComparison,
        shape: RelationShape,
        staging: RangeWriter,
        found: Collection[str],
    ) -> set[str]:
        """Stage deletes of the keys that have no row; returns these keys in the form of the log."""
        if not keys:
            return set()
        version, names = shape.version, [column.name for column in shape.version.columns]
        places = [names.index(column) for column in version.key_columns]
        query = sql.SQL("copy ({}) to stdout").format(printed_keys_query(comparison, keys))
        staged: dict[str, bytes] = {}
        with closing(copy_text.read_lines(self._source, query)) as arriving:
            for line in chain.from_iterable(arriving):
                row: Row = [UNCHANGED] * len(names)
                for place, value in zip(places, copy_text.split_line(line, len(places)), strict=True):
                    row[place] = value
                pk, record, exact, _ = shape.relation.encoder.encode_present(row)
                if (key := pk.decode()) not in found and key not in staged:
                    number = staging.rows + len(staged)
                    rest = None if exact is None else (None, exact, None, None, None, None)
                    staged[key] = rows.row(_HEAD, number + 1, number, _DELETE, pk, record, rest)
        if staged:
            staging.add(list(staged.values()))
        return staged.keys() | set()

    def _lock(self, taken: ClaimedRange, names: Sequence[str]) -> None:
        try:
            reading_session.lock(self._source, [queries.trusted(name) for name in names], SNAPSHOT, LOCK_TIMEOUT)
        except psycopg.Error as error:
            found = self._explained(taken, error, _RAISE)
            if isinstance(found, psycopg.Error) and not connections.is_ours(found):
                found = connections.unavailable(self._source.info.dsn, "source", found)
            raise found from error

    def _begin(self, timeout: int | None = None) -> None:
        """Begin a transaction at the source. `timeout`: of a statement, in milliseconds; None: that of the role."""
        limit = None if timeout is None else str(timeout)
        local = {"synchronous_commit": "local", "lock_timeout": LOCK_TIMEOUT, "statement_timeout": limit}
        reading_session.begin(self._source, SNAPSHOT, **local)

    @contextmanager
    def _transaction(self, taken: ClaimedRange, limit: int | None) -> Iterator[None]:
        """Run the block in a transaction at the source, explain its errors, and roll back what is not committed.

        `limit`: how many milliseconds a statement may take; None: as many as the role has.
        """
        remedy = (
            _RAISE
            if limit is None
            else f"its condition may take {CONDITION_SECONDS} s; start the backfill with another condition"
        )
        try:
            self._begin(limit)
            yield
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            if self._source.info.transaction_status not in _FAILED:
                raise connections.unavailable(self._pipeline.info.dsn, "pipeline database", error) from error
            raise self._explained(taken, error, remedy) from error
        finally:
            reading_session.roll_back(self._source)

    def _explained(self, taken: ClaimedRange, error: psycopg.Error, remedy: str) -> Exception:
        """Return the exception that says what an error of the source means for the range; else the error itself."""
        line = connections.one_line(error)
        if isinstance(error, psycopg.errors.LockNotAvailable):
            reading_session.roll_back(self._source)
            with reading_session.transaction(self._source, SNAPSHOT):
                return TableReadBlockedError(self._who_holds(taken))
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return PlannedTableChangedError("the table was renamed or dropped")
        if isinstance(error, _TIMEOUTS):
            return RangeReadTimeoutError(line, remedy if isinstance(error, psycopg.errors.QueryCanceled) else _RAISE)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            reading_session.roll_back(self._source)
            with reading_session.transaction(self._source, SNAPSHOT):
                return TableUnreadableError(self._shapes.refused(taken.relation_oid, taken.table_oid) or line)
        if error.sqlstate is None or error.sqlstate.startswith(_PASSING):
            return error
        remedy = _OLD_KEY if isinstance(error, psycopg.DataError) and taken.keys else ""
        return TableUnreadableError(f"{line} (SQLSTATE {error.sqlstate}){remedy}")

    def _limit(self) -> int | None:
        """Return how many milliseconds a range with a condition may take; None if the role's own timeout is shorter."""
        most = round(1000 * CONDITION_SECONDS)
        role: int = queries.value(self._source, statement("snapshots", "statement_timeout"))
        return most if not role or role > most else None

    def _copy(
        self, rows_of: sql.Composable, shape: RelationShape, staging: RangeWriter, found: set[str] | None = None
    ) -> None:
        """Stage the rows of this query, and add their keys to `found`."""
        query = sql.SQL("copy ({}) to stdout").format(rows_of)
        encode, staged, size = shape.relation.encode_texts, list[bytes](), 0
        width = len(shape.version.columns)
        with closing(copy_text.read_lines(self._source, query)) as arriving:
            for number, line in enumerate(chain.from_iterable(arriving), staging.rows):
                pk, record, exact, _ = encode(copy_text.split_line(line, width), len(line))
                rest = None if exact is None else (None, exact, None, None, None, None)
                row = rows.row(_HEAD, number + 1, number, _CHANGE, pk, record, rest)
                if found is not None:
                    found.add(pk.decode())
                staged.append(row if len(row) <= rows.LONGEST else rows.without_values(row))
                size += len(row)
                if size >= STAGE_BYTES:
                    staging.add(staged)
                    staged, size = [], 0
        if staged:
            staging.add(staged)

    def _who_holds(self, taken: ClaimedRange) -> str:
        row = self._source.execute(statement("snapshots", "holders_of_table"), {"oid": taken.relation_oid}).fetchone()
        if row is None:
            return "waits for a lock on the table"
        pid, user, name, state = row
        return (
            f"waits for pid {pid} ({user or 'another user'}, {name or 'no name'}, {state or 'unknown'}), which locks it"
        )


def range_query(
    taken: ClaimedRange, name: str, version: HistoryVersion, conditions: Iterable[sql.Composable | None]
) -> sql.Composable:
    """Return the query for the range's rows for which all conditions hold, with columns in the order of the version."""
    columns = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each.name)) for each in version.columns)
    within: list[sql.Composable] = []
    source = sql.SQL("only {} as t").format(queries.trusted(name))
    if taken.from_block:
        within.append(sql.SQL("t.ctid operator(pg_catalog.>=) {}::pg_catalog.tid").format(f"({taken.from_block},0)"))
    if taken.until_block == 0:  # an empty range, which a role without rights on ctid can read, too
        within.append(sql.SQL("false"))
    elif taken.until_block is not None:
        within.append(sql.SQL("t.ctid operator(pg_catalog.<) {}::pg_catalog.tid").format(f"({taken.until_block},0)"))
    within += [sql.SQL("({})").format(condition) for condition in conditions if condition is not None]
    where = sql.SQL(" where ") + sql.SQL(" and ").join(within) if within else sql.SQL("")
    return sql.SQL("select {} from {}{}").format(columns, source, where)


def printed_keys_query(key: KeyComparison, keys: Sequence[Sequence[str]]) -> sql.Composable:
    """Return the query for the keys as the source prints them, because the log may have numbers of JSON instead."""
    return sql.SQL("select {} from {}").format(sql.SQL(", ").join(key.table_columns()), key.as_table(keys))
