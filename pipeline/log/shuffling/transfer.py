"""Transfer rows of segments to events tables, with watermark and segments, in one transaction of the shuffler.

`TransferFactory` begins the transfers one after the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import FencedError
from pipeline.log import table as log
from pipeline.log.shuffling.targets import TargetShare, TargetTable, TargetTables
from pipeline.log.shuffling.toast_fill import RowSelection, ValueFiller
from pipeline.log.staging import segments
from pipeline.log.staging.segments import Segment
from pipeline.log.table import EventsTable
from pipeline.postgres.batched_transaction import StatementBatch, StatementResult
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

_BETWEEN = sql.SQL(" and w.ordinal >= %(first)s and w.ordinal <= %(last)s")
_WAKE_READERS = """\
select pg_notify(%(channel)s, json_build_object('table', name, 'seq', last_seq)::text)
from pipeline.events_tables
where source_id = %(source)s and last_seq is not null
"""
"""Wake the readers of every events table that has events."""


class SeqTakenError(Exception):
    """The next seq is not the guessed one: roll back, call `forget` of the targets, and move the same rows again."""


class WatermarkMovedError(FencedError):
    """A second shuffler has run, or the worker has written a batch directly: read the state again."""


@dataclass(frozen=True)
class LogWatermark:
    """The watermark of the log: every transaction of `epoch` up to `after` has been moved."""

    epoch: int
    after: int


class RowTransfer:
    """Moves rows in one transaction, in order. Create it in the transaction; it ends with `finish` or a rollback.

    `filler` fills in unchanged values. Unless `batch` is eager the first seq is a guess; a wrong guess raises
    SeqTakenError. Raises WatermarkMovedError when the watermark is not at `place`.
    """

    def __init__(
        self,
        connection: Connection,
        source: uuid.UUID,
        targets: TargetTables,
        filler: ValueFiller,
        place: LogWatermark,
        batch: StatementBatch,
    ) -> None:
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = filler
        self._newest = targets.default
        self._place = place
        self._batch = batch
        self._before: int | None = None
        self._guessed = targets.begin(guess=not batch.eager)
        self._locked = self._lock_watermark()
        if self._guessed is None:
            self._send()
        self._insert = sql.SQL(statement("log.shuffling", "move_segment"))
        self._select = sql.SQL(statement("log.shuffling", "select_rows"))
        self._select_share = sql.SQL(statement("log.shuffling", "select_share"))
        self.stopped_in: tuple[int, int] | None = None
        """The last segment moved from, and the next ordinal in it."""

    @property
    def moved(self) -> int:
        """Events added so far."""
        return sum(target.added for target in self._targets)

    @property
    def epoch(self) -> int:
        """The source's epoch at the watermark."""
        return self._place.epoch

    @property
    def after(self) -> int:
        """Every transaction up to this commit_lsn was moved before."""
        return self._place.after

    @property
    def newest(self) -> tuple[str, int]:
        """Events table and seq of the last event."""
        return str(self._newest.table), self._newest.seq - 1

    def move(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> None:
        """Move rows of the segment from `ordinal` on whose commit_lsn is at most `upto`; they get the next seqs.

        With `last`, none beyond that ordinal; else `ordinal` must be the first one after the watermark.
        """
        values = self._values(ordinal, upto, last)
        if not self._targets.routes:
            whole = last is None and upto >= segment.last_lsn
            rows = segment.first_ordinal + segment.row_count - ordinal
            if not whole:
                self._send()
                rows = _count(self._batch, segment, values)
            moved = self._move_all(self._targets.default, segment, values, rows)
        else:
            shares = self.shares(segment, ordinal, upto, last)
            if len(shares) == 1:
                moved = self._move_all(shares[0].target, segment, values, shares[0].rows)
            else:
                moved = self._move_shares(shares, segment, values)
        self.stopped_in = segment.id, ordinal + moved

    def shares(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> list[TargetShare]:
        """The rows that `move` with these arguments would add to each target."""
        self._send()
        values = self._values(ordinal, upto, last)
        return self._targets.shares(segment, _between(values), values)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Set a savepoint. If a statement inside of it fails, all after it is undone, and the error is raised."""
        added = [(target, target.added) for target in self._targets]
        newest, stopped_in = self._newest, self.stopped_in
        try:
            with self._connection.transaction():
                yield
        except psycopg.Error:
            for target, before in added:
                target.back_to(before)
            self._newest, self.stopped_in = newest, stopped_in
            raise

    def finish(self, upto: int, drained: Sequence[int]) -> None:
        """End the transfer: everything up to the transaction `upto` is moved, and these segments are drained."""
        self._send()
        if segments.mark_drained(self._connection, drained) != len(drained):
            raise FencedError("a new replication worker gave up segments while their rows were moved")
        if upto > self.after:
            self._set_watermark(upto)

    def _values(self, ordinal: int, upto: int, last: int | None) -> dict[str, Any]:
        return {
            "source": self._source,
            "epoch": self.epoch,
            "after": self.after,
            "upto": upto,
            "first": ordinal,
            "last": last,
        }

    def _move_all(self, target: TargetTable, segment: Segment, values: Mapping[str, Any], expected: int) -> int:
        """Move all rows, `expected` of them, to this target, in the order of ordinals; returns their number."""
        rows = self._select.format(segment=segment.rows, bounds=_between(values))
        piece = RowSelection(target.table, rows, {**values, "offset": target.seq - values["first"]})
        self._reserve(target, expected)
        added = self._insert_rows(piece, again=not segment.full)
        if added != expected:
            added += self._filler.fill([piece])
        require_all(target.table, added, expected)
        self._added(target, added)
        return added

    def _move_shares(self, shares: Sequence[TargetShare], segment: Segment, values: Mapping[str, Any]) -> int:
        lacking, added = [], 0
        for share in shares:
            rows = self._select_share.format(segment=segment.rows, bounds=_between(values))
            pairs = {"relations": share.relations, "actions": share.actions, "prefixes": share.prefixes}
            mine = {**pairs, "offset": share.target.seq}
            piece = RowSelection(share.target.table, rows, {**values, **mine})
            self._reserve(share.target, share.rows)
            written = self._insert_rows(piece, again=not segment.full)
            if written != share.rows:
                lacking.append(piece)
            added += written
            self._added(share.target, share.rows)
        added += self._filler.fill(lacking)  # a row's last event may be in any of these tables
        expected = sum(share.rows for share in shares)
        require_all(", ".join(str(piece.table) for piece in lacking), added, expected)
        return expected

    def _reserve(self, target: TargetTable, rows: int) -> None:
        """Make sure that partitions exist for `rows` more rows."""
        if not target.has_room(rows):
            self._send()
            target.reserve(rows)

    def _added(self, target: TargetTable, rows: int) -> None:
        target.add(rows)
        if rows:
            self._newest = target

    def _insert_rows(self, piece: RowSelection, *, again: bool) -> int:
        """Insert the rows that lack no values; returns their number. `again`: more of the segment will follow."""
        query = self._insert.format(events=piece.table.identifier, rows=piece.rows)
        if again:
            answer = self._batch.add_prepared("move_segment", query, piece.values)
        else:
            answer = self._batch.add(query, piece.values)
        # After the insert: its lock on the table keeps new rules from being made.
        rules_query = sql.SQL(statement("log.shuffling", "insert_rules"))
        table = {"table": piece.table.identifier.as_string()}
        if self._targets.routes:  # making a partition of one table would deallocate what was prepared for another
            rules = self._batch.add(rules_query, table)
        else:
            rules = self._batch.add_prepared("insert_rules", rules_query, table)
        self._send()
        require_no_rule(piece.table, rules.rows)
        return answer.count

    def _lock_watermark(self) -> StatementResult:
        values = {
            "source": self._source,
            "epoch": self.epoch,
            "watermark": self.after,
            "sequence": self._targets.default.table.sequence.as_string(self._connection),
        }
        return self._batch.add_prepared("lock_watermark", sql.SQL(statement("log.shuffling", "lock_watermark")), values)

    def _send(self) -> None:
        """Send the waiting statements, and check once that the watermark and the seq are as expected."""
        self._batch.send()
        if self._before is not None:
            return
        if not self._locked.rows:
            raise WatermarkMovedError(
                f"the watermark of source {self._source} is no longer {self.after}: another shuffler has run"
            )
        self._before, taken = self._locked.rows[0]
        if self._guessed is not None and taken != self._guessed - 1:
            raise SeqTakenError

    def _set_watermark(self, commit_lsn: int) -> None:
        default, newest = self._targets.default, self._newest
        written = [target for target in self._targets if target.added]
        query = sql.SQL(statement("log.shuffling", "advance_watermark")).format(newest=newest.table.identifier)
        values = {
            "source": self._source,
            "commit_lsn": commit_lsn,
            "newest_seq": newest.seq - 1 if newest.added else None,
            "last_seq": default.seq - 1 if default.added else None,
            "default": str(default.table),
            "names": [str(target.table) for target in written],
            "sequences": [target.table.sequence.as_string(self._connection) for target in written],
            "seqs": [target.seq - 1 for target in written],
            "added": [target.added for target in written],
            "events": self.moved,
        }
        self._batch.add_prepared("advance_watermark", query, values)
        for target in written:
            target.finish()
            # After the commit: one with a NOTIFY makes all others with one, staging's too, wait until it is on disk.
            self._batch.add_after_commit("select pg_notify(%s, %s)", log.notification(target.table, target.seq - 1))


def wake_readers(connection: Connection, source: uuid.UUID) -> None:
    """Notify readers of each table's newest seq: a shuffler may have been killed between a commit and its NOTIFY."""
    connection.execute(_WAKE_READERS, {"source": source, "channel": log.CHANNEL})


def _count(batch: StatementBatch, segment: Segment, values: Mapping[str, Any]) -> int:
    query = sql.SQL(statement("log.shuffling", "count_staged")).format(segment=segment.rows, bounds=_between(values))
    return int(batch.ask(query, values).rows[0][0])


def require_all(table: object, added: int, expected: int) -> None:
    """Raise a psycopg error, as if the server had refused them, if rows have vanished: they are poison, too."""
    if added != expected:
        raise psycopg.errors.TriggeredDataChangeViolation(
            f"a trigger of {table} drops events: {added} of {expected} arrived"
        )


def require_no_rule(table: object, rules: Sequence[object]) -> None:
    """Raise a psycopg error if a rule does something else instead of the insert."""
    if rules:
        raise psycopg.errors.TriggeredDataChangeViolation(
            f"a rule of {table} does something else instead of an insert; drop it, or make a trigger of it"
        )


def _between(values: Mapping[str, Any]) -> sql.Composable:
    return sql.SQL("") if values["last"] is None else _BETWEEN


class TransferFactory:
    """Begins transfers, and knows the first row of a segment that is not moved yet."""

    def __init__(self, connection: Connection, source: uuid.UUID, targets: Callable[[], TargetTables]) -> None:
        """`targets` is called when a transfer begins: the targets are opened with the first one."""
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = ValueFiller(connection, source)
        self._stopped_in: tuple[int, int] | None = None
        self.drained = 0
        """Number of segments that committed transfers have drained, and that are not emptied yet."""

    @property
    def default(self) -> EventsTable:
        """The events table of changes that no route matches."""
        return self._targets().default.table

    @property
    def has_routes(self) -> bool:
        """True if changes go to other events tables, too."""
        return bool(self._targets().routes)

    def attached(self, first: int, last: int) -> None:
        """Note that tables with these seqs became partitions of the default table, instead of a move."""
        self._targets().default.attached(first, last)

    def begin(self, place: LogWatermark, statements: StatementBatch | None = None) -> RowTransfer:
        """Begin a transfer inside of its transaction; without `statements` each statement is sent at once."""
        statements = statements or StatementBatch(self._connection)
        targets = self._targets()
        return RowTransfer(self._connection, self._source, targets, self._filler, place, statements)

    def committed(self, transfer: RowTransfer, drained: int) -> int:
        """Remember where a transfer stopped, and the number of drained segments; returns the number of added events."""
        self._stopped_in = transfer.stopped_in or self._stopped_in
        self.drained += drained
        return transfer.moved

    def forget(self) -> None:
        """Forget partitions, the next seq and where the last transfer stopped, which may be wrong."""
        self._targets().forget()
        self._stopped_in = None

    def next_ordinal(self, segment: Segment, after: int, transfer: RowTransfer) -> int:
        """Return the ordinal of the first row to move. It reads only segments that were moved in part before."""
        for stopped_in in (transfer.stopped_in, self._stopped_in):
            if stopped_in and stopped_in[0] == segment.id and segment.first_lsn <= after:
                return stopped_in[1]
        if segment.first_lsn > after:
            return segment.first_ordinal
        return segments.first_ordinal_after(self._connection, segment, after)
