"""Reads one range of a table at the source, in a short transaction of its own, and stages its rows.

The order of its steps is what makes the rows exact (docs/decisions/0011-reading-beside-the-stream.md): lock, snapshot,
rows, marker; then the rows are made durable here; then the transaction, and its marker with it, commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from pipeline.capture.replication.range_marker import RANGE_MARKER
from pipeline.capture.replication.staged_relation import StagedRelation
from pipeline.capture.schema_history import introspection
from pipeline.capture.schema_history.introspection import Description
from pipeline.capture.schema_history.versions import TableVersion
from pipeline.capture.snapshot import copy_text, register, selection
from pipeline.capture.snapshot.samples import Samples
from pipeline.capture.source import publication_ledger, sources
from pipeline.capture.source.sources import Source
from pipeline.errors import PipelineError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.staging import rows
from pipeline.staging.range_writer import RangeWriter
from pipeline.staging.ranges import Read, Taken

LOCK_TIMEOUT = "2s"
CONDITION_SECONDS = 60
"""How long rows of a range with a condition are read: what a user wrote may take any time for each row."""
STAGE_BYTES = 1_000_000
"""Rows are handed to the pipeline database in parts of about so many bytes."""
_BEGIN = (
    "begin isolation level repeatable read read only; set local synchronous_commit = local;"
    f" set local lock_timeout = '{LOCK_TIMEOUT}'"
)
_FAILED = (psycopg.pq.TransactionStatus.INERROR, psycopg.pq.TransactionStatus.UNKNOWN)
"""A statement has failed there, or the connection is gone."""
_TIMEOUTS = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)
_PASSING = ("08", "40", "53", "55", "57")
"""SQLSTATE classes of errors that may be gone at the next try."""
_RAISE = "raise that timeout for this role"
_HEAD = rows.transaction_head(0)
_CHANGE = rows.change_head(0, 0, 0, b"read")


class Unreadable(PipelineError):
    """This table cannot be read, for a reason that does not go away by itself."""


class Held(PipelineError):
    """A session keeps the table from being read."""


class Changed(PipelineError):
    """The table is no longer what was planned: it is in another file, has another root, or is not there."""


class TooSlow(PipelineError):
    """A timeout ended the transaction: a shorter range may be read in time."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


@dataclass(frozen=True)
class Facts:
    """A relation in the snapshot in which it is read."""

    snapshot: str
    file: int
    table_oid: int
    same_name: bool
    readable: bool
    shape: str


@dataclass(frozen=True)
class Shape:
    """How rows of a relation are read and written, as long as `shape` of its Facts stays what it is.

    `published`: only rows for which this holds are; None: all.
    """

    shape: str
    description: Description
    published: sql.Composable | None
    relation: StagedRelation

    @property
    def version(self) -> TableVersion:
        """The table's version."""
        return self.description.version

    @property
    def by_key(self) -> bool:
        """Whether a row's key identifies it in the log."""
        return has_key(self.version)


def has_key(version: TableVersion) -> bool:
    """Whether rows of this version have a key that no other row of the table has."""
    return bool(version.key_columns) and version.unique_in_root is not False


class RangeReader:
    """Reads ranges over one connection to the source, one at a time."""

    def __init__(self, source: Connection, pipeline: Connection, stored: Source) -> None:
        """`pipeline`: for looks at the log and at what is stored of the source."""
        self._source, self._pipeline = source, pipeline
        self._source.execute("set search_path = ''")
        self._stored = stored
        self._samples = Samples(source, pipeline, stored)
        self._shapes: dict[int, Shape] = {}

    @property
    def _publications(self) -> list[str]:
        return list(publication_ledger.known(self._stored))

    def read(
        self, taken: Taken, staging: RangeWriter, since: Mapping[str, int], condition: sql.Composable | None = None
    ) -> bool:
        """Read the range and stage its rows. `since`: seqs before the backfill began. False when it was taken away.

        Raises Held, Changed, TooSlow or Unreadable; then nothing is staged, and no marker has committed.
        """
        self._samples.take()
        name = self._name(taken)
        with self._transaction(taken, condition):
            self._source.execute(sql.SQL("lock table only {} in access share mode").format(selection.trusted(name)))
            facts = self._facts(taken, name)
            shape = self._shape(taken, facts)
            if not shape.by_key and (taken.keys is not None or taken.from_block or taken.until_block):
                raise Changed(f"{name} has no key any more")
            # By the keys that such rows have now, nobody would learn what becomes of them until then.
            if shape.by_key and register.is_about_to_be_keyed(
                self._source, self._pipeline, self._stored, taken.table_oid, taken.relation_oid
            ):
                raise Held("it has got a key: waits until its updates are captured")
            self._copy(taken, name, shape, condition, staging)
            marked = self._source.execute(
                "select pg_catalog.pg_logical_emit_message(true, %s, %s), pg_catalog.pg_current_xact_id()::text",
                (RANGE_MARKER, str(taken.token)),
            ).fetchone()
            assert marked is not None  # noqa: S101  function calls
            seqs = self._samples.before(facts.snapshot, since)
            version = shape.description.to_json()
            if not staging.store(Read(staging.rows, facts.snapshot, seqs, version, shape.by_key, marked[1])):
                self._source.execute("rollback")
                return False
            self._source.execute("commit")
        return True

    @contextmanager
    def _transaction(self, taken: Taken, condition: sql.Composable | None) -> Iterator[None]:
        """The transaction at the source; it is rolled back unless the block has ended it. Explains its errors."""
        remedy = _RAISE
        try:
            self._source.execute(_BEGIN)
            remedy = _RAISE if condition is None else self._limit()
            yield
        except psycopg.Error as error:
            if self._source.info.transaction_status not in _FAILED:
                raise  # the other database's
            raise self._explained(taken, error, remedy) from error
        finally:
            self._roll_back()

    def _explained(self, taken: Taken, error: psycopg.Error, remedy: str) -> Exception:
        """What an error of the source says about the range; the error itself where it says nothing."""
        line = connections.one_line(error)
        if isinstance(error, psycopg.errors.LockNotAvailable):
            self._roll_back()
            return Held(self._who_holds(taken))
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return Changed("the table was renamed or dropped")
        if isinstance(error, _TIMEOUTS):
            return TooSlow(line, remedy if isinstance(error, psycopg.errors.QueryCanceled) else _RAISE)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return Unreadable(f"{line}; grant select on it, or let no policy hide its rows, and start it again")
        if error.sqlstate is None or error.sqlstate.startswith(_PASSING):
            return error
        return Unreadable(f"{line} (SQLSTATE {error.sqlstate})")

    def _limit(self) -> str:
        """Give a condition its time, unless the role has less; returns the remedy for a range that takes longer."""
        values = {"most": round(1000 * CONDITION_SECONDS)}
        limited = self._source.execute(statement("capture.snapshot", "limit_condition"), values).rowcount
        return f"its condition has {CONDITION_SECONDS} s; start it with another" if limited else _RAISE

    def _roll_back(self) -> None:
        if not self._source.closed and self._source.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._source.execute("rollback")

    def _name(self, taken: Taken) -> str:
        name: str | None = queries.value(
            self._source, statement("capture.snapshot", "relation_name"), {"oid": taken.relation_oid}
        )
        if name is None:
            raise Changed("the table was dropped")
        return name

    def _facts(self, taken: Taken, name: str) -> Facts:
        values = {"oid": taken.relation_oid, "name": name, "publications": self._publications}
        facts = queries.one(self._source, Facts, statement("capture.snapshot", "range_facts"), values)
        if facts is None or not facts.same_name:
            raise Changed("the table was renamed or dropped")
        if facts.table_oid != taken.table_oid:
            raise Changed(f"{name} was attached to another table, or detached")
        if taken.file is not None and facts.file != taken.file:
            raise Changed(f"{name} was written anew")
        if not facts.readable:
            raise Unreadable(f"this user may not read {name}; grant select on it, then start it again")
        return facts

    def _shape(self, taken: Taken, facts: Facts) -> Shape:
        known = self._shapes.get(taken.relation_oid)
        if known is None or known.shape != facts.shape:
            try:
                known = self._shapes[taken.relation_oid] = self._describe(taken.relation_oid, facts)
            except psycopg.InternalError as error:  # Postgres' views open each published table, which may be gone
                raise Changed(f"another table was dropped meanwhile ({connections.one_line(error)})") from error
        return known

    def _describe(self, oid: int, facts: Facts) -> Shape:
        found = self._published(oid)
        if found is None:  # by a publication that was made since
            self._stored = sources.find(self._pipeline, self._stored.id) or self._stored
            found = self._published(oid)
        if found is None:
            raise Unreadable("it is not published any more")
        columns, condition = found
        described = introspection.present(
            self._source,
            oid,
            self._stored.slot,
            self._publications,
            list(self._stored.publications.values()),
            columns or [],
            joined=True,
        )
        if described is None:
            raise Changed("the table was dropped")
        published = None if condition is None else selection.trusted(condition)
        return Shape(facts.shape, described, published, StagedRelation(0, described.version))

    def _published(self, oid: int) -> TupleRow | None:
        values = {"oid": oid, "publications": self._publications}
        return self._source.execute(statement("capture.snapshot", "published_rows"), values).fetchone()

    def _copy(
        self, taken: Taken, name: str, shape: Shape, condition: sql.Composable | None, staging: RangeWriter
    ) -> None:
        query = sql.SQL("copy ({}) to stdout").format(
            selection.of_range(taken, name, shape.version, [shape.published, condition])
        )
        encode, staged, size = shape.relation.encode_texts, list[bytes](), 0
        width, number = len(shape.version.columns), 0
        with closing(copy_text.lines(self._source, query)) as arriving:
            for lines in arriving:
                for line in lines:
                    pk, record, exact, _ = encode(copy_text.values(line, width), len(line))
                    rest = None if exact is None else (None, exact, None, None, None, None)
                    row = rows.row(_HEAD, number + 1, number, _CHANGE, pk, record, rest)
                    staged.append(row if len(row) <= rows.LONGEST else rows.without_values(row))
                    size += len(row)
                    number += 1
                    if size >= STAGE_BYTES:
                        staging.add(staged)
                        staged, size = [], 0
        if staged:
            staging.add(staged)

    def _who_holds(self, taken: Taken) -> str:
        row = self._source.execute(
            statement("capture.snapshot", "holders_of_table"), {"oid": taken.relation_oid}
        ).fetchone()
        if row is None:
            return "waits for a lock on the table"
        pid, user, name, state = row
        return (
            f"waits for pid {pid} ({user or 'another user'}, {name or 'no name'}, {state or 'unknown'}), which locks it"
        )
