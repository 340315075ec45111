"""The events tables that one shuffler writes, and the choice of a table for each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from pipeline.config.routes import Route
from pipeline.log import table as log
from pipeline.log.partitions import PartitionCreator
from pipeline.log.shuffling import sequences
from pipeline.log.staging.segments import Segment
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_NAME_RELATIONS = "select id, table_schema, table_name from pipeline.relations where id = any (%(ids)s::integer[])"
"""Read the names by which routes choose: those of the partition root, also for a truncate of a leaf."""


class TargetTable:
    """An events table as the shuffler writes it: its partitions and, inside of a transaction, its next seq.

    Call `begin` when a transaction begins; a seq is taken from the sequence only when one is needed.
    `retention`: seconds that its events are kept, for the size of partitions.
    """

    def __init__(self, connection: Connection, table: EventsTable, retention: float | None = None) -> None:
        self.table = table
        self.partitions = PartitionCreator(connection, table, retention=retention)
        self._connection = connection
        self._first: int | None = None
        self._seq = 0
        self._next: int | None = None

    def begin(self, *, guess: bool = False) -> int | None:
        """Begin a transaction; the one before has committed or rolled back.

        With `guess`, and if the last seq is known, returns the seq after it without a query. The caller must
        check that seq before the transaction commits.
        """
        self._first = self._next if guess else None
        self._seq = self._first or 0
        return self._first

    @property
    def seq(self) -> int:
        """The next seq."""
        if self._first is None:
            seq = self._next_seq()
            if seq != self._next:
                seq = sequences.repair(self._connection, self.table, seq)
            self._first = self._seq = seq
        return self._seq

    def _next_seq(self) -> int:
        try:
            return log.next_seq(self._connection, self.table)
        except psycopg.errors.SequenceGeneratorLimitExceeded as error:
            raise self.partitions.used_up() from error

    @property
    def added(self) -> int:
        """Number of events added in this transaction."""
        return 0 if self._first is None else self._seq - self._first

    def has_room(self, rows: int) -> bool:
        """Return True if partitions exist for `rows` more rows."""
        return self.partitions.has_room(self.seq + rows)

    def reserve(self, rows: int) -> None:
        """Make sure that partitions exist for `rows` more rows."""
        self.partitions.reserve(self.seq + rows, self.seq)

    def add(self, rows: int) -> None:
        """Count `rows` rows that were added to the table, with seqs from `seq` up without gaps."""
        self._seq = self.seq + rows

    def attached(self, first: int, last: int) -> None:
        """Count attached rows with these seqs, the only ones that were added since the transaction began."""
        self._first, self._seq = first, last + 1

    def back_to(self, added: int) -> None:
        """Go back to a savepoint at which the transaction had added `added` rows."""
        if self._first is not None:
            self._seq = self._first + added
        self.partitions.forget()

    def finish(self) -> None:
        """Note that the transaction is about to commit; its last statement sets the sequence if needed."""
        self._next = self._seq if self.added else self._next

    def forget(self) -> None:
        """Forget the partitions and the next seq, which may be wrong."""
        self._next = None
        self.partitions.forget()


@dataclass
class TargetShare:
    """The rows of a segment that go to one target: by relation and action, and messages by prefix."""

    target: TargetTable
    relations: list[int] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    prefixes: list[str | None] = field(default_factory=list)
    rows: int = 0
    last: int = 0
    """The ordinal of the share's last row."""


class TargetTables:
    """All targets of one shuffler: the default table first, then those of the routes. Each table must exist."""

    def __init__(
        self,
        connection: Connection,
        default: EventsTable,
        routes: Sequence[Route] = (),
        retention: float | None = None,
    ) -> None:
        self.routes = tuple(routes)
        self.default = TargetTable(connection, default, retention)
        self._connection = connection
        self._by_name = {str(default): self.default}
        for route in routes:
            if route.events_table not in self._by_name:
                table = EventsTable.parse(route.events_table)
                self._by_name[route.events_table] = TargetTable(connection, table, retention)
        self._chosen: dict[tuple[int, str], TargetTable] = {}

    def __iter__(self) -> Iterator[TargetTable]:
        return iter(self._by_name.values())

    def named(self, name: str) -> TargetTable:
        """Return the target of this name; a table without a route becomes a target only by this call."""
        return self._by_name.get(name) or TargetTable(self._connection, EventsTable.parse(name))

    def begin(self, *, guess: bool = False) -> int | None:
        """Begin a transaction. Returns the default table's next seq if that is a guess, as TargetTable.begin does."""
        for target in self:
            target.begin()
        return self.default.begin(guess=guess)

    def forget(self) -> None:
        """Forget all partitions and seqs: a transaction that created partitions may have been rolled back."""
        for target in self:
            target.forget()

    def shares(self, segment: Segment, bounds: sql.Composable, values: Mapping[str, Any]) -> list[TargetShare]:
        """Return the shares of the segment's rows within these bounds, in the order of their last rows."""
        query = sql.SQL(statement("log.shuffling", "count_rows")).format(segment=segment.rows, bounds=bounds)
        counted = self._connection.execute(query, values).fetchall()
        self._choose({(relation, action) for relation, action, *_ in counted})
        shares: dict[str, TargetShare] = {}
        for relation, action, prefix, rows, last in counted:
            # The targets of messages are not remembered by prefix: there may be any number of prefixes.
            target = self._target_of("", prefix, action) if prefix else self._chosen[relation, action]
            share = shares.setdefault(str(target.table), TargetShare(target))
            share.relations.append(relation)
            share.actions.append(action)
            share.prefixes.append(prefix)
            share.rows += rows
            share.last = max(share.last, last)
        return sorted(shares.values(), key=lambda share: share.last)

    def _choose(self, pairs: set[tuple[int, str]]) -> None:
        missing = pairs - self._chosen.keys()
        if not missing:
            return
        ids = {"ids": sorted({relation for relation, _ in missing})}
        rows = self._connection.execute(_NAME_RELATIONS, ids).fetchall()
        names = {relation: (schema, table) for relation, schema, table in rows}
        for relation, action in missing:
            self._chosen[relation, action] = self._target_of(*names[relation], action)

    def _target_of(self, schema: str, table: str, action: str) -> TargetTable:
        for route in self.routes:
            if route.matches(schema, table, action):
                return self._by_name[route.events_table]
        return self.default
