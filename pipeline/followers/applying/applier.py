"""Applies the log to one follower: each call moves it from the end of one transaction to the end of a later one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import psycopg
from psycopg import sql

from pipeline.errors import FollowerError, NotFollowableError, RowDiffersError, StatementRefusedError
from pipeline.followers.applying import position, sets, truncates
from pipeline.followers.applying.elements import REFUSALS, send
from pipeline.followers.applying.followed_tables import FollowedTables, TableToFollow
from pipeline.followers.applying.outcomes import OrderedEvent, require_whole
from pipeline.followers.applying.passes import EpochGap, PlannedPass
from pipeline.followers.applying.position import FollowerPosition
from pipeline.followers.applying.read_ahead import ReadAheadError
from pipeline.followers.applying.reading import (
    DEFAULT_SIZES,
    EventsInOrder,
    FewOutcomes,
    ManyOutcomes,
    PassPart,
    PassSizes,
)
from pipeline.followers.applying.relay_statements import RelayStatements
from pipeline.followers.applying.table_statements import TableStatements
from pipeline.followers.applying.truncates import Empty
from pipeline.followers.applying.upcoming_passes import LogSelection, NothingNext, SharedReader, UpcomingPasses
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres import connections, copy_data
from pipeline.postgres.connections import Connection

_GIVEN = sql.SQL("copy pg_temp.pipeline_given from stdin")


@dataclass(frozen=True)
class AppliedBatch:
    """The result of one call: the follower equals the source as of the transaction that ends at `seq`."""

    seq: int
    commit_lsn: int | None
    committed_at: datetime
    transactions: int
    events: int


class LogApplier:
    """Applies the log to one follower, from one thread. No other code uses its connections while it is open.

    `follower` is a connection of `position.connect`, and the follower must have a position (`position.begin`). An error
    leaves the follower as it was before the call, and `apply` may be called again. After an error of psycopg make a new
    applier, which reads the position again. Close it at the end.
    """

    def __init__(
        self,
        log: Connection,
        follower: Connection,
        source: uuid.UUID,
        name: str,
        wanted: Mapping[int, TableToFollow],
        *,
        events_table: EventsTable = DEFAULT,
        sizes: PassSizes = DEFAULT_SIZES,
        connect: Callable[[], Connection] | None = None,
        shared: SharedReader | None = None,
        on_history: Callable[[], None] | None = None,
        begins: FollowerPosition | None = None,
        bound_of: Callable[[int, int], str | None] = lambda _root, _partition: None,
        gap: EpochGap | None = None,
    ) -> None:
        """`wanted`: the tables to follow, by their oids at the source.

        - `connect`: opens a connection to the log that reads ahead.
        - `shared`: asked for passes first, because other followers may read the same events.
        - `on_history`: called before the next pass if the relation history has grown; `apply` raises its errors.
        - `bound_of`: returns an SQL condition that is true for the rows of a partition.
        - `gap`: the follower stops before its epoch.
        - `begins`: apply the log from this position to these tables only, in the open transaction. The follower's own
          position does not move, and other sessions can read the tables at the same time.

        Raises FollowerError if the follower has no position, or cannot take the rows of a table.
        """
        found = begins or position.find(follower, source, name)
        if found is None:
            raise FollowerError(f"follower {name} has no position: begin one first")
        self._log, self._follower, self._wanted, self._bound_of = log, follower, wanted, bound_of
        self._position, self._moves = found, begins is None
        self._empty = truncates.truncate_promptly if self._moves else truncates.delete_rows
        self._events_table, self._sizes, self._connect, self._gap = events_table, sizes, connect, gap
        self._shared, self._on_history = shared, on_history
        self._closely_upto = self._one_by_one_upto = 0
        self._read_tables()

    def close(self) -> None:
        """Stop reading the log."""
        self._upcoming.close()

    @property
    def position(self) -> FollowerPosition:
        """The position up to which the log is applied."""
        return self._position

    @property
    def tables(self) -> FollowedTables:
        """The tables, in the versions that they have reached."""
        return self._tables

    def read_tables(self) -> None:
        """Read the follower's tables again, which is needed after one was altered there."""
        self.close()
        self._read_tables()

    def _read_tables(self) -> None:
        tables = self._tables = FollowedTables.read(self._log, self._follower, self._wanted, self._position)
        source = LogSelection(self._position.source, tables, self._events_table, self._sizes, self._gap)
        self._upcoming = UpcomingPasses(self._log, source, self._position.seq, self._connect, self._shared)
        self._statements = {table.oid: TableStatements(table) for table in tables}
        self._relays = {table.oid: RelayStatements(table) for table in tables}

    def apply(self, upto: int | None = None) -> AppliedBatch | None:
        """Apply as many of the next transactions as fit into a batch, in one transaction; None if there are none.

        No applied transaction begins after the seq `upto`. Raises ApplierOvertakenError, and CursorExpiredError if
        retention has dropped the next events. Raises RowDiffersError or NotFollowableError if the next transaction
        cannot be applied; all earlier ones have been applied by then. Raises StatementRefusedError if the follower
        refuses a statement.
        """
        single = self._position.seq < self._one_by_one_upto
        batch = self._next(self._position.seq, upto, single=single)
        if batch is None:
            return None
        try:
            return self._apply(batch, upto)
        except (
            RowDiffersError,
            NotFollowableError,
            StatementRefusedError,
            SmallerPassNeededError,
            ReadAheadError,
        ) as error:
            self.close()
            # The follower must stop before the transaction that fails, and a batch of several does not tell which one.
            if self._latest.is_long or isinstance(error, ReadAheadError):
                self._closely_upto = self._latest.upto
            elif batch.transactions > 1:
                self._one_by_one_upto = batch.upto
            else:
                raise
        except BaseException:
            self.close()
            raise
        return self.apply(upto)

    def _next(self, after: int, upto: int | None, *, single: bool, continues: bool = False) -> PlannedPass | None:
        found = self._ask(after, upto, single=single, continues=continues)
        # A version of a table is stored before the first event of that version. So if the history has grown, this pass
        # may need other versions than those that were read. This can repeat while tables get their first events. A
        # transaction that is open brings no new version, because all were stored before it reached the log.
        while not continues and found.history_number != self.tables.history_number:
            self._check_history()
            self.read_tables()
            self._check_history()  # reading the tables hides what was added before; `on_history` must see that, too
            found = self._ask(after, upto, single=single, continues=continues)
        if isinstance(found, NothingNext):
            return None
        self._latest = found
        return found

    def _check_history(self) -> None:
        if self._on_history is not None:
            self._on_history()

    def _ask(self, after: int, upto: int | None, *, single: bool, continues: bool) -> PlannedPass | NothingNext:
        closely = (single and not continues) or after < self._closely_upto
        return self._upcoming.next(after, upto, single=single, continues=continues, closely=closely)

    def _apply(self, batch: PlannedPass, upto: int | None) -> AppliedBatch:
        events, here = 0, self._position
        planned: PlannedPass | None = batch
        with self._follower.transaction():
            while planned is not None:
                after = position.advance(
                    here, planned.source_epoch, planned.upto, planned.commit_lsn, planned.committed_at
                )
                if self._moves:
                    position.move(self._follower, here, after)
                self._write(planned)
                events, here, last = events + planned.events, after, planned
                planned = None if planned.whole else self._next(planned.upto, upto, single=True, continues=True)
        self._position = here
        return AppliedBatch(here.seq, here.commit_lsn, last.committed_at, batch.transactions, events)

    def _write(self, planned: PlannedPass) -> None:
        """Write a pass: truncates first, because of a table's events only those after its last truncate count."""
        with self._named("its truncates", planned):
            truncates.apply_truncates(self._follower, self.tables, planned.truncates, self._empty, self._bound_of)
        for part in self._upcoming.parts:
            match part:
                case EventsInOrder():
                    tables = frozenset(each.table for each in part.events)
                    with self._named("a table whose events are applied one by one", planned, tables):
                        write_in_order(self._follower, self._statements.__getitem__, part.events, self._empty)
                case FewOutcomes() | ManyOutcomes():
                    with self._named(f"table {self.tables[part.oid]}", planned, frozenset((part.oid,))):
                        self._write_set(part)

    def _write_set(self, part: FewOutcomes | ManyOutcomes) -> None:
        if isinstance(part, FewOutcomes):
            sets.write_outcomes(self._follower, self._statements[part.oid], part.outcomes)
        elif part.new is not None:
            add_new_rows(self._follower, self._relays[part.oid], _blocks(self._upcoming.parts), part.new)
        else:
            write_outcomes(self._follower, self._relays[part.oid], _blocks(self._upcoming.parts))

    @contextmanager
    def _named(self, what: str, planned: PlannedPass, tables: frozenset[int] = frozenset()) -> Iterator[None]:
        """Turn an error of the follower in the block into one that names what was written, the seqs and the reason."""
        try:
            yield
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            raise StatementRefusedError(
                f"the follower refuses a statement for {what}, of {_span(planned.after + 1, planned.upto)}:"
                f" {_reason(error)} (SQLSTATE {error.sqlstate})",
                "follower",
                tables,
            ) from error


def _blocks(parts: Iterable[PassPart]) -> Iterator[bytes]:
    """Yield the blocks of COPY text of one table."""
    for block in parts:
        if not isinstance(block, bytes) or not block:
            return
        yield block


def _span(first: int, last: int) -> str:
    return f"seqs {first} to {last}" if first < last else f"seq {last}"


def _reason(error: psycopg.Error) -> str:
    """Return the database's message, without it for errors of data, which may contain values of rows."""
    if isinstance(error, psycopg.DataError):
        return f"a column's type does not allow a value ({type(error).__name__})"
    return connections.one_line(error)


def write_in_order(
    follower: Connection, of_table: Callable[[int], TableStatements], events: Sequence[OrderedEvent], empty: Empty
) -> None:
    """Write events one by one in the open transaction. Raises RowDiffersError.

    `of_table`: returns the statements for a table by its oid.
    """
    for event in events:
        statements = of_table(event.table)
        if event.operation == "truncate":
            empty(follower, [statements.table.target], [statements.table.identifier])
            continue
        require_whole(statements.table, event)
        seq = _write_event(follower, statements, event)
        if seq is not None:
            raise sets.missing_row(statements, seq)


def _write_event(follower: Connection, statements: TableStatements, event: OrderedEvent) -> int | None:
    queries = {
        "insert": lambda: statements.insert,
        "upsert": lambda: statements.upsert,
        "delete": lambda: statements.delete,
        "move": lambda: statements.update_with_key,
        "update": lambda: statements.update if statements.table.key else statements.update_with_key,
    }
    try:
        return send(follower, queries[event.operation](), [event.element or ""])
    except REFUSALS as error:
        raise sets.present_row(statements, event.seq) from error


class SmallerPassNeededError(Exception):
    """A row of a long pass cannot be written. Smaller passes must find out which row, so this is no error yet."""


def add_new_rows(follower: Connection, statements: RelayStatements, blocks: Iterable[bytes], rows: int) -> None:
    """Add new rows in the open transaction. `rows`: their number. Raises SmallerPassNeededError."""
    if copy_data.write_blocks(follower, statements.copy_rows, blocks) != rows:
        raise SmallerPassNeededError


def write_outcomes(follower: Connection, statements: RelayStatements, blocks: Iterable[bytes]) -> None:
    """Write outcomes in the open transaction. Raises RowDiffersError and SmallerPassNeededError."""
    follower.execute(statements.make_given.encode())
    copy_data.write_blocks(follower, _GIVEN, blocks)
    given = _OutcomeTable(follower, statements)
    if given.has("insert") and not given.are_whole("insert"):
        raise SmallerPassNeededError
    sets.write_sets(follower, given)
    follower.execute("drop table pg_temp.pipeline_given")


class _OutcomeTable(sets.TableOutcomes):
    """The outcomes of one table in a temporary table of the follower."""

    def __init__(self, follower: Connection, statements: RelayStatements) -> None:
        self._follower, self.statements, self._relay = follower, statements, statements
        self._whole = dict[str, bool]()
        self._read_operations()

    def _read_operations(self) -> None:
        self._whole = dict(self._follower.execute(self._relay.given_rows.encode()).fetchall())

    def has(self, operation: str) -> bool:
        return operation in self._whole

    def are_whole(self, operation: str) -> bool:
        return self._whole[operation]

    def send(self, query: str, operation: str) -> int | None:
        # Names may contain a percent sign, which only the raw cursor does not interpret.
        cursor = psycopg.RawCursor(self._follower).execute(query, (operation,))
        row = cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]

    def move(self) -> None:
        self._follower.execute(self._relay.move_given.encode())
        self._read_operations()

    def refused(self, query: str, operation: str) -> NoReturn:
        raise SmallerPassNeededError
