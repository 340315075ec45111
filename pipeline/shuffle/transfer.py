"""One transaction of the shuffler: rows of segments become events, watermark and segments move with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.errors import Fenced
from pipeline.events import log
from pipeline.shuffle import folding
from pipeline.shuffle.filling import Filler, Piece
from pipeline.shuffle.targets import Share, Target, Targets
from pipeline.staging import segments
from pipeline.staging.segments import Segment

_BETWEEN = sql.SQL(" and w.ordinal >= %(first)s and w.ordinal <= %(last)s")


class Transfer:
    """What one transaction moves, in order. Make it inside of the transaction; it ends with `finish` or a rollback.

    `filler` fills in what rows lack. Raises Fenced when the watermark is not at `after`: a second shuffler ran.
    """

    def __init__(self, connection: Connection, source: uuid.UUID, targets: Targets, filler: Filler, after: int) -> None:
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = filler
        self._newest = targets.default
        self._after = after
        self._epoch, self._before = self._lock_watermark()
        targets.begin()
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
        return self._epoch

    @property
    def after(self) -> int:
        """Every transaction up to here was moved before."""
        return self._after

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
            expected = segment.first_ordinal + segment.row_count - ordinal if whole else None
            moved = self._move_all(self._targets.default, segment, values, segment.row_count, expected)
        else:
            shares = self.shares(segment, ordinal, upto, last)
            if len(shares) == 1:
                moved = self._move_all(shares[0].target, segment, values, shares[0].rows, shares[0].rows)
            else:
                moved = self._move_shares(shares, segment, values)
        self.stopped_in = segment.id, ordinal + moved

    def shares(self, segment: Segment, ordinal: int, upto: int, last: int | None = None) -> list[Share]:
        """Who would get what if the same were moved."""
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
        if segments.mark_drained(self._connection, drained) != len(drained):
            raise Fenced("segments were given up by a new replication worker while they were moved")
        default = self._targets.default
        for target in self._targets:
            target.finish()
        if default.added:
            # What a table from before holds is no news: consumers that want it catch up a chunk at a time.
            before = self._before or default.seq - 1 - default.added
            folding.fold_moved(self._connection, default.table, before, default.added, default.seq - 1)
        if upto > self._after:
            self._set_watermark(upto)

    def _values(self, ordinal: int, upto: int, last: int | None) -> dict[str, Any]:
        return {
            "source": self._source,
            "epoch": self._epoch,
            "after": self._after,
            "upto": upto,
            "first": ordinal,
            "last": last,
        }

    def _move_all(
        self, target: Target, segment: Segment, values: Mapping[str, Any], most: int, expected: int | None
    ) -> int:
        """All rows are this target's, at most so many; returns how many they are. Their order is that of ordinals.

        `expected`: how many exactly, where that is known.
        """
        target.reserve(most)
        rows = self._select.format(segment=segment.table, bounds=_between(values))
        piece = Piece(target.table, rows, {**values, "offset": target.seq - values["first"]})
        target.partitions.reserve_days(piece.rows, piece.values)
        added = self._insert_rows(piece)
        if added != expected:
            added += self._filler.fill([piece])
        self._added(target, added)
        return added

    def _move_shares(self, shares: Sequence[Share], segment: Segment, values: Mapping[str, Any]) -> int:
        lacking = []
        for share in shares:
            share.target.reserve(share.rows)
            rows = self._select_share.format(segment=segment.table, bounds=_between(values))
            mine = {"relations": share.relations, "actions": share.actions, "offset": share.target.seq}
            piece = Piece(share.target.table, rows, {**values, **mine})
            share.target.partitions.reserve_days(piece.rows, piece.values)
            if self._insert_rows(piece) != share.rows:
                lacking.append(piece)
            self._added(share.target, share.rows)
        self._filler.fill(lacking)  # a row's last event may be in any of them
        return sum(share.rows for share in shares)

    def _added(self, target: Target, rows: int) -> None:
        target.add(rows)
        if rows:
            self._newest = target

    def _insert_rows(self, piece: Piece) -> int:
        """All that lack nothing."""
        query = self._insert.format(events=piece.table.identifier, rows=piece.rows)
        return self._connection.execute(query, piece.values).rowcount

    def _lock_watermark(self) -> tuple[int, int]:
        row = self._connection.execute(
            statement("shuffle", "lock_watermark"), {"source": self._source, "watermark": self._after}
        ).fetchone()
        if row is None:
            raise Fenced(f"the watermark of source {self._source} has left {self._after}: another shuffler has run")
        return int(row[0]), int(row[1])

    def _set_watermark(self, commit_lsn: int) -> None:
        default, newest = self._targets.default.table, self._newest
        written = [target for target in self._targets if target.added]
        query = sql.SQL(statement("shuffle", "advance_watermark")).format(
            newest=newest.table.identifier, sequence=sql.Literal(default.sequence.as_string(self._connection))
        )
        values = {
            "source": self._source,
            "commit_lsn": commit_lsn,
            "newest_seq": newest.seq - 1 if newest.added else None,
            "names": [str(target.table) for target in written],
            "seqs": [target.seq - 1 for target in written],
            "added": [target.added for target in written],
            "events": self.moved,
        }
        self._connection.execute(query, values)
        for target in written:
            log.notify(self._connection, target.table, target.seq - 1)


def _between(values: Mapping[str, Any]) -> sql.Composable:
    return sql.SQL("") if values["last"] is None else _BETWEEN
