"""One transaction of the shuffler: rows of segments become events, watermark and segments move with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pipeline.errors import Fenced
from pipeline.log import table as log
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.shuffle import queue_apply
from pipeline.shuffle.batched_transaction import Answer, Together
from pipeline.shuffle.targets import Share, Target, Targets
from pipeline.shuffle.toast_fill import Filler, Piece
from pipeline.staging import segments
from pipeline.staging.segments import Segment

_BETWEEN = sql.SQL(" and w.ordinal >= %(first)s and w.ordinal <= %(last)s")


class SeqTaken(Exception):
    """The next seq is not the one that was guessed: roll back, let the targets forget, and move the same again."""


@dataclass(frozen=True)
class Place:
    """Where the log is: every transaction of `epoch` up to `after` was moved."""

    epoch: int
    after: int


class Transfer:
    """What one transaction moves, in order. Make it inside of the transaction; it ends with `finish` or a rollback.

    `filler` fills in what rows lack; `folds`: there may be records consumers. Unless `together` is eager the first seq
    is a guess, and what shows it to be wrong raises SeqTaken. Raises Fenced when the watermark is not at `place`: a
    second shuffler ran.
    """

    def __init__(
        self,
        connection: Connection,
        source: uuid.UUID,
        targets: Targets,
        filler: Filler,
        place: Place,
        together: Together,
        *,
        folds: bool = True,
    ) -> None:
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = filler
        self._newest = targets.default
        self._place = place
        self._together = together
        self._folds = folds
        self._before: int | None = None
        self._guessed = targets.begin(guess=not together.eager)
        self._locked = self._lock_watermark()
        if self._guessed is None:
            self._send()
        self._insert = sql.SQL(statement("shuffle", "move_segment"))
        self._select = sql.SQL(statement("shuffle", "select_rows"))
        self._select_share = sql.SQL(statement("shuffle", "select_share"))
        self.stopped_in: tuple[int, int] | None = None
        """The last segment moved from, and the ordinal to go on with."""

    @property
    def moved(self) -> int:
        """Events so far."""
        return sum(target.added for target in self._targets)

    @property
    def epoch(self) -> int:
        """Of the source, as the watermark has it."""
        return self._place.epoch

    @property
    def after(self) -> int:
        """Every transaction up to here was moved before."""
        return self._place.after

    @property
    def newest(self) -> tuple[str, int]:
        """Events table and seq of the last event."""
        return str(self._newest.table), self._newest.seq - 1

    def move(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> None:
        """Rows of the segment from `ordinal` on, as far as their commit_lsn is at most `upto`, get the next seqs.

        With `last`, none beyond that ordinal; else `ordinal` must be the first one after the watermark.
        """
        values = self._values(ordinal, upto, last)
        if not self._targets.routes:
            whole = last is None and upto >= segment.last_lsn
            rows = segment.first_ordinal + segment.row_count - ordinal
            if not whole:
                self._send()
                rows = _count(self._together, segment, values)
            moved = self._move_all(self._targets.default, segment, values, rows)
        else:
            shares = self.shares(segment, ordinal, upto, last)
            if len(shares) == 1:
                moved = self._move_all(shares[0].target, segment, values, shares[0].rows)
            else:
                moved = self._move_shares(shares, segment, values)
        self.stopped_in = segment.id, ordinal + moved

    def shares(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> list[Share]:
        """Who would get what if the same were moved."""
        self._send()
        values = self._values(ordinal, upto, last)
        return self._targets.shares(segment, _between(values), values)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What fails in the database inside of it is as if it had not been tried; the error is raised."""
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
        """Everything up to the transaction `upto` is moved, and these segments are done with."""
        self._send()
        if segments.mark_drained(self._connection, drained) != len(drained):
            raise Fenced("segments were given up by a new replication worker while they were moved")
        default = self._targets.default
        if default.added and self._folds:
            # What a table from before holds is no news: consumers that want it catch up a chunk at a time.
            before = self._before or default.seq - 1 - default.added
            queue_apply.apply_moved(self._connection, default.table, before, default.added, default.seq - 1)
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

    def _move_all(self, target: Target, segment: Segment, values: Mapping[str, Any], expected: int) -> int:
        """All rows are this target's, so many; returns how many they are. Their order is that of ordinals."""
        rows = self._select.format(segment=segment.table, bounds=_between(values))
        piece = Piece(target.table, rows, {**values, "offset": target.seq - values["first"]})
        self._reserve(target, expected)
        added = self._insert_rows(piece, again=not segment.full)
        if added != expected:
            added += self._filler.fill([piece])
        require_all(target.table, added, expected)
        self._added(target, added)
        return added

    def _move_shares(self, shares: Sequence[Share], segment: Segment, values: Mapping[str, Any]) -> int:
        lacking, added = [], 0
        for share in shares:
            rows = self._select_share.format(segment=segment.table, bounds=_between(values))
            mine = {"relations": share.relations, "actions": share.actions, "offset": share.target.seq}
            piece = Piece(share.target.table, rows, {**values, **mine})
            self._reserve(share.target, share.rows)
            written = self._insert_rows(piece, again=not segment.full)
            if written != share.rows:
                lacking.append(piece)
            added += written
            self._added(share.target, share.rows)
        added += self._filler.fill(lacking)  # a row's last event may be in any of them
        expected = sum(share.rows for share in shares)
        require_all(", ".join(str(piece.table) for piece in lacking), added, expected)
        return expected

    def _reserve(self, target: Target, rows: int) -> None:
        """So many more have a place."""
        if not target.has_room(rows):
            self._send()
            target.reserve(rows)

    def _added(self, target: Target, rows: int) -> None:
        target.add(rows)
        if rows:
            self._newest = target

    def _insert_rows(self, piece: Piece, *, again: bool) -> int:
        """All that lack nothing. `again`: more of that segment will follow."""
        query = self._insert.format(events=piece.table.identifier, rows=piece.rows)
        if again:
            answer = self._together.add_prepared("move_segment", query, piece.values)
        else:
            answer = self._together.add(query, piece.values)
        # Behind the insert, whose lock no new rule gets past.
        look, table = sql.SQL(statement("shuffle", "insert_rules")), {"table": piece.table.identifier.as_string()}
        if self._targets.routes:  # the first partition of one table would take away what was prepared for another
            rules = self._together.add(look, table)
        else:
            rules = self._together.add_prepared("insert_rules", look, table)
        self._send()
        require_no_rule(piece.table, rules.rows)
        return answer.count

    def _lock_watermark(self) -> Answer:
        values = {
            "source": self._source,
            "epoch": self.epoch,
            "watermark": self.after,
            "sequence": self._targets.default.table.sequence.as_string(self._connection),
        }
        return self._together.add_prepared("lock_watermark", sql.SQL(statement("shuffle", "lock_watermark")), values)

    def _send(self) -> None:
        """What was to be done is done, in the transaction that was planned for."""
        self._together.send()
        if self._before is not None:
            return
        if not self._locked.rows:
            raise Fenced(f"the watermark of source {self._source} has left {self.after}: another shuffler has run")
        self._before, taken = self._locked.rows[0]
        if self._guessed is not None and taken != self._guessed - 1:
            raise SeqTaken

    def _set_watermark(self, commit_lsn: int) -> None:
        default, newest = self._targets.default, self._newest
        written = [target for target in self._targets if target.added]
        query = sql.SQL(statement("shuffle", "advance_watermark")).format(newest=newest.table.identifier)
        values = {
            "source": self._source,
            "commit_lsn": commit_lsn,
            "newest_seq": newest.seq - 1 if newest.added else None,
            "last_seq": default.seq - 1 if default.added else None,
            "sequence": default.table.sequence.as_string(self._connection),
            "names": [str(target.table) for target in written],
            "sequences": [target.table.sequence.as_string(self._connection) for target in written],
            "seqs": [target.seq - 1 for target in written],
            "added": [target.added for target in written],
            "events": self.moved,
        }
        self._together.add_prepared("advance_watermark", query, values)
        for target in written:
            target.finish()
            # Not inside: until a commit with a NOTIFY is on disk, every other commit with one, staging's too, waits.
            self._together.later("select pg_notify(%s, %s)", log.notification(target.table, target.seq - 1))


def wake_readers(connection: Connection, source: uuid.UUID) -> None:
    """How far each events table is: a shuffler may have been killed between a commit and what it says behind it."""
    connection.execute(statement("shuffle", "wake_readers"), {"source": source, "channel": log.CHANNEL})


def _count(together: Together, segment: Segment, values: Mapping[str, Any]) -> int:
    query = sql.SQL(statement("shuffle", "count_staged")).format(segment=segment.table, bounds=_between(values))
    return int(together.ask(query, values).rows[0][0])


def require_all(table: object, added: int, expected: int) -> None:
    """What the database refuses without a word is poison too. Raises a psycopg.Error, as for a refusal with words."""
    if added != expected:
        raise psycopg.errors.TriggeredDataChangeViolation(
            f"{expected - added} of {expected} events did not arrive in {table}: a trigger of it drops them"
        )


def require_no_rule(table: object, rules: Sequence[object]) -> None:
    """The same for a rule that does something else instead of the insert."""
    if rules:
        raise psycopg.errors.TriggeredDataChangeViolation(
            f"a rule of {table} does something else instead of an insert; drop it, or make a trigger of it"
        )


def _between(values: Mapping[str, Any]) -> sql.Composable:
    return sql.SQL("") if values["last"] is None else _BETWEEN
