"""Applies the log to one follower: each call brings it from the end of one transaction to the end of a later one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql

from pipeline.errors import Differs, FollowerError, NotFollowable, Refused
from pipeline.followers.applying import in_order, position, sets, table_versions, truncates
from pipeline.followers.applying.followed_tables import FollowedTable, FollowedTables, Wanted
from pipeline.followers.applying.outcomes import Outcomes
from pipeline.followers.applying.passes import Gap, Pass, Passes
from pipeline.followers.applying.position import Position
from pipeline.followers.applying.table_statements import TableStatements
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

EVENTS = 1000
"""The most events in a pass: beyond that many, another way of carrying rows is cheaper."""

_PLANS = {
    # A range of seqs is read by their index, whatever else is asked of the events in it, and however short the log is
    # when the plan is made: to make one takes longer than to read a few events.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # How many events are in it no plan knows, and a join by nested loops takes the square of that.
    "enable_nestloop": "off",
}
"""Settings of the session of the log."""


@dataclass(frozen=True)
class Applied:
    """What one call has done: the follower is the source as of the transaction that ends at `seq`."""

    seq: int
    commit_lsn: int | None
    committed_at: datetime
    transactions: int
    events: int


class Applier:
    """Of one follower. Both connections are its own, from one thread, and `follower` one of `position.connect`.

    The follower must have a position (`position.begin`). After any error the follower is as it was before the call, and
    `apply` may be called again; after one of psycopg's make a new applier, which reads the position again.
    """

    def __init__(
        self,
        log: Connection,
        follower: Connection,
        source: uuid.UUID,
        name: str,
        wanted: Mapping[int, Wanted],
        *,
        events_table: EventsTable = DEFAULT,
        events: int = EVENTS,
        on_history: Callable[[], None] | None = None,
        begins: Position | None = None,
        bound_of: Callable[[int, int], str | None] = lambda _root, _partition: None,
        gap: Gap | None = None,
    ) -> None:
        """`wanted`: which tables, by their oids at the source. `on_history`: called where the relation history
        has grown, before what comes next is applied; what it raises is raised by `apply`. `bound_of`: SQL that holds
        for the rows of a partition. `gap`: before which epoch to stop.

        `begins`: in a transaction that is open, only these tables are brought from there to somewhere else. The
        follower's position stays, and nobody is kept from reading them.

        Raises FollowerError where the follower has no position, or cannot take the rows of a table.
        """
        found = begins or position.find(follower, source, name)
        if found is None:
            raise FollowerError(f"follower {name} has no position: begin one first")
        self._log, self._follower, self._wanted, self._bound_of = log, follower, wanted, bound_of
        self._position, self._moves = found, begins is None
        self._empty = truncates.run_soon if self._moves else truncates.delete
        self._passes = Passes(log, source, events_table, events, gap)
        self._events_table = events_table
        for setting, value in _PLANS.items():
            log.execute("select set_config(%s, %s, false)", (setting, value))
        self._one_by_one_upto = 0
        self._on_history = on_history
        self.read_tables()

    @property
    def position(self) -> Position:
        """Up to where the log is applied."""
        return self._position

    @property
    def tables(self) -> FollowedTables:
        """The tables as they are at the position."""
        return self._tables

    def read_tables(self) -> None:
        """Look again what the follower's tables are. Needed after one was changed there."""
        self._tables = FollowedTables.read(self._log, self._follower, self._wanted, self._position)
        self._outcomes = Outcomes(self._log, self._position.source, self._events_table)
        self._statements = {table.oid: TableStatements(table) for table in self._tables}

    def apply(self, upto: int | None = None) -> Applied | None:
        """Apply the next transactions, as many as fit into a batch, in one transaction; None when there is none.

        None of them begins after the seq `upto`. Raises Overtaken, and CursorExpired where retention has dropped what
        comes next. Raises Differs and NotFollowable where the next transaction is the one that cannot be applied: all
        before it have been by then. Raises Refused where the follower refuses a statement.
        """
        single = self._position.seq < self._one_by_one_upto
        batch = self._plan(self._position.seq, upto, single=single)
        if batch is None:
            return None
        try:
            return self._apply(batch, upto)
        except (Differs, NotFollowable, Refused):
            if batch.transactions == 1:
                raise
            # The follower stops before the transaction that is in the way. Which one that is, a whole batch cannot say.
            self._one_by_one_upto = batch.upto
        return self.apply(upto)

    def _plan(self, after: int, upto: int | None, *, single: bool, continues: bool = False) -> Pass | None:
        found = self._passes.next(self._tables, after, upto, continues=continues, single=single)
        # A version is there before its transaction is in the log: in the middle of one there is no new one.
        if continues or table_versions.newest(self._log, self._position.source) == self._tables.version:
            return found
        # It is there before its first event is, so what was planned without it may not fit.
        if self._on_history is not None:
            self._on_history()
        self.read_tables()
        return self._passes.next(self._tables, after, upto, continues=continues, single=single)

    def _apply(self, batch: Pass, upto: int | None) -> Applied:
        events, here = 0, self._position
        planned: Pass | None = batch
        with self._follower.transaction():
            while planned is not None:
                after = position.advanced(
                    here, planned.source_epoch, planned.upto, planned.commit_lsn, planned.committed_at
                )
                if self._moves:
                    position.move(self._follower, here, after)
                self._write(planned)
                self._passes.require_kept(planned.after)
                events, here, last = events + planned.events, after, planned
                planned = None if planned.whole else self._plan(planned.upto, upto, single=True, continues=True)
        self._position = here
        return Applied(here.seq, here.commit_lsn, last.committed_at, batch.transactions, events)

    def _write(self, planned: Pass) -> None:
        """The events of a pass: truncates first, since of a table that is emptied only what follows counts."""
        emptied = dict[int, int]()
        targets, names = list[sql.Composable](), list[sql.Identifier]()
        for seq, oid in planned.truncates:
            table = self._tables[oid]
            if oid not in table.partitions:
                if not table.in_order:
                    emptied[oid] = seq
            elif (leaf := table.partitions[oid]) is not None:
                targets.append(leaf)
                names.append(leaf)
            else:
                self._empty_partition(table, oid, seq, planned)
        targets += [self._tables[oid].target for oid in emptied]
        names += [self._tables[oid].identifier for oid in emptied]
        with self._named("its truncates", planned):
            self._empty(self._follower, targets, names)
        tables = [self._tables[oid] for oid in sorted(planned.tables)]
        for table in tables:
            if not table.in_order:
                found = self._outcomes.folded(table, emptied.get(table.oid, planned.after), planned.upto)
                with self._named(f"table {table}", planned):
                    sets.write(self._follower, self._statements[table.oid], found)
        self._write_in_order(planned, (table for table in self._tables if table.in_order))

    def _empty_partition(self, table: FollowedTable, oid: int, seq: int, planned: Pass) -> None:
        """Delete what a partition had that the follower does not have: its rows are in the table, or its partitions."""
        bound = self._bound_of(table.oid, oid)
        if bound is None:
            raise NotFollowable(
                f"table {table} of the follower stops before seq {seq}: it truncates a partition that the follower does"
                " not have, and the source cannot say any more which rows it had",
                str(table),
                seq,
                "partition",
            )
        with self._named(f"the truncate of a partition of table {table}", planned):
            query = sql.SQL("delete from {} where {}").format(
                table.target,
                sql.SQL(bound),  # as the catalog prints it
            )
            self._follower.execute(query)

    def _write_in_order(self, planned: Pass, tables: Iterable[FollowedTable]) -> None:
        touched = {*planned.tables, *(oid for _, oid in planned.truncates)}
        found = self._outcomes.in_order([each for each in tables if each.oid in touched], planned.after, planned.upto)
        with self._named("a table whose events are applied one by one", planned):
            in_order.write(self._follower, self._statements.__getitem__, found, self._empty)

    @contextmanager
    def _named(self, what: str, planned: Pass) -> Iterator[None]:
        """Say where the follower has refused a statement."""
        try:
            yield
        except psycopg.Error as error:
            if connections.is_gone(error) or connections.is_ours(error):
                raise
            raise Refused(
                f"the follower refuses a statement for {what}, of seqs {planned.after + 1} to {planned.upto}:"
                f" {_reason(error)} (SQLSTATE {error.sqlstate})"
            ) from error


def _reason(error: psycopg.Error) -> str:
    """What a database says, without values of rows: what it says of data has them."""
    if isinstance(error, psycopg.DataError):
        return f"it does not take a value ({type(error).__name__})"
    return connections.one_line(error)
