"""Find rows that cannot be written as events by bisection, and stop at them or park them."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, fields
from typing import Literal

import psycopg
from psycopg import sql

from pipeline.log import dead_letters
from pipeline.log.shuffling.plan import ShuffleRun
from pipeline.log.shuffling.transfer import RowTransfer
from pipeline.log.staging.segments import Segment
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import lsn

OnPoison = Literal["stop", "park"]
_COPY = sql.Identifier("pg_temp", "bisected_rows")
_MAKE_COPY = (
    "create temp table if not exists bisected_rows (like public.wal_events) on commit drop",
    "create index if not exists bisected_rows_idx on pg_temp.bisected_rows (ordinal)",
    "truncate pg_temp.bisected_rows",
)


@dataclass(frozen=True)
class _CopiedSegment(Segment):
    """A segment whose rows are read from the temporary copy."""

    @property
    def rows(self) -> sql.Composable:
        """The temporary copy."""
        return sql.SQL("only {}").format(_COPY)


@dataclass(frozen=True)
class PoisonChange:
    """A change that cannot be written, and the cause.

    `in_place`: the event that would take its place cannot be written either. `values_lost`: its values were too long to
    be staged.
    """

    table: str
    commit_lsn: int
    commit_idx: int
    action: str
    cause: str
    sqlstate: str
    ordinal: int
    segment: Segment
    in_place: bool = False
    values_lost: bool = False

    def __str__(self) -> str:
        where = f"({lsn.show(self.commit_lsn)}, {self.commit_idx})"
        what = f"{self.action} of {self.table} at {where} cannot be written: {self.cause} (SQLSTATE {self.sqlstate})"
        if self.in_place:
            return f"{what}; not even an event with an empty record can take its place: remove the cause"
        if self.values_lost:
            return f"{what}; set PIPELINE_ON_POISON=park to keep its place as a dead letter and continue"
        return f"{what}; remove the cause, or set PIPELINE_ON_POISON=park to keep it as a dead letter and continue"


class PoisonError(Exception):
    """A change cannot be written, and the transaction in which this is raised must be rolled back."""

    def __init__(self, poison: PoisonChange) -> None:
        super().__init__(str(poison))
        self.poison = poison


class BisectingTransfer:
    """Moves rows in a transaction and finds those that cannot be written. Create it after the `transfer`."""

    def __init__(self, connection: Connection, source: uuid.UUID, transfer: RowTransfer, on_poison: OnPoison) -> None:
        self._connection = connection
        self._source = source
        self._transfer = transfer
        self._on_poison = on_poison
        self.parked = 0
        """Number of changes parked."""
        # A constraint checked only at the commit could not be attributed to a row.
        connection.execute("set constraints all immediate")

    def move(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> None:
        """Move rows as `RowTransfer.move` does, without those that cannot be written.

        Raises PoisonError at the first one that is not parked.
        """
        first, last = self._copy(segment, ordinal, upto, last)
        copied = _CopiedSegment(**{each.name: getattr(segment, each.name) for each in fields(Segment)})
        todo = [(first, last)] if first is not None and last is not None else []
        while todo:
            low, high = todo.pop()
            try:
                self._try(copied, low, upto, high)
            except psycopg.Error as error:
                if not connections.is_poison(error):
                    raise
                if low == high:
                    self._poisoned(copied, segment, low, upto, error)
                else:
                    todo += reversed(_parts(low, high, self._named(low, error)))

    def _copy(self, segment: Segment, ordinal: int, upto: int, last: int | None) -> tuple[int | None, int | None]:
        """Copy the rows, with an index: otherwise the whole segment would be read for each row."""
        for command in _MAKE_COPY:
            self._connection.execute(command)
        query = sql.SQL(statement("log.shuffling", "copy_rows")).format(segment=segment.rows)
        values = {"after": self._transfer.after, "upto": upto, "first": ordinal, "last": last}
        self._connection.execute(query, values)
        self._connection.execute("analyze pg_temp.bisected_rows")
        row = self._connection.execute("select min(ordinal), max(ordinal) from pg_temp.bisected_rows").fetchone()
        return (row[0], row[1]) if row else (None, None)

    def _named(self, low: int, error: psycopg.Error) -> int | None:
        """Return the ordinal of the row that the server's message names, with which many bad rows are found faster.

        It is only a hint: columns of a legacy events table may have another order.
        """
        found = re.match(r"Failing row contains \((\d+),", error.diag.message_detail or "")
        return low + int(found[1]) - self._transfer.newest[1] - 1 if found else None

    def _try(self, segment: Segment, low: int, upto: int, high: int) -> None:
        with self._transfer.savepoint():
            self._transfer.move(segment, low, upto, high)

    def _poisoned(self, copied: Segment, segment: Segment, ordinal: int, upto: int, error: psycopg.Error) -> None:
        poison = self._locate(segment, ordinal, error)
        if self._on_poison == "stop":
            raise PoisonError(poison)
        letter = dead_letters.park(
            self._connection, self._source, self._transfer.epoch, _COPY, ordinal, poison.cause, poison.sqlstate
        )
        for annotated in (True, False):
            try:
                self._blank(ordinal, letter, annotated=annotated)
                self._try(copied, ordinal, upto, ordinal)
            except psycopg.Error as refusal:
                if not connections.is_poison(refusal):
                    raise
                failure = refusal
            else:
                dead_letters.set_event(self._connection, letter, *self._transfer.newest)
                self.parked += 1
                return
        raise PoisonError(self._locate(segment, ordinal, failure, in_place=True))

    def _blank(self, ordinal: int, letter: int, *, annotated: bool) -> None:
        values = {"ordinal": ordinal, "metadata": json.dumps({"parked": letter}), "annotated": annotated}
        self._connection.execute(statement("log.shuffling", "blank_row"), values)

    def _locate(self, segment: Segment, ordinal: int, error: psycopg.Error, *, in_place: bool = False) -> PoisonChange:
        row = self._connection.execute(statement("log.shuffling", "locate_row"), {"ordinal": ordinal}).fetchone()
        assert row is not None  # noqa: S101  it was just read
        table, commit_lsn, commit_idx, action, too_long = row
        cause, state = connections.cause_of(error), error.sqlstate or ""
        lost = bool(too_long) and not in_place
        if lost:
            cause, state = too_long, "54000"  # program_limit_exceeded
        return PoisonChange(table, commit_lsn, commit_idx, action, cause, state, ordinal, segment, in_place, lost)


def _parts(low: int, high: int, named: int | None) -> list[tuple[int, int]]:
    """Return the ranges to try next, in order: those around the named row, or both halves."""
    if named is None or not low <= named <= high:
        middle = (low + high) // 2
        return [(low, middle), (middle + 1, high)]
    around = [(low, named - 1), (named, named), (named + 1, high)]
    return [(first, last) for first, last in around if first <= last]


def before(connection: Connection, run: ShuffleRun, poison: PoisonChange) -> ShuffleRun | None:
    """Return the part of a run with the whole transactions before the poisoned one; None if there are none."""
    found = []
    for segment in run.segments:
        if segment.first_lsn < poison.commit_lsn:
            query = sql.SQL(statement("log.shuffling", "last_before")).format(segment=segment.rows)
            found.append(queries.value(connection, query, {"after": run.after, "before": poison.commit_lsn}))
    upto = max((commit_lsn for commit_lsn in found if commit_lsn is not None), default=None)
    if upto is None:
        return None
    moving = tuple(segment for segment in run.segments if segment.first_lsn <= upto)
    drained = tuple(segment.id for segment in moving if segment.full and segment.last_lsn <= upto)
    return ShuffleRun(moving, run.after, upto, drained)
