"""One transaction of the shuffler: rows of segments become events, watermark and segments move with them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from psycopg import sql

from pipeline.db import Connection
from pipeline.db import sql as statement
from pipeline.errors import Fenced
from pipeline.events import log
from pipeline.events.log import EventsTable
from pipeline.events.partitions import Partitions
from pipeline.shuffle import folding
from pipeline.staging import segments
from pipeline.staging.segments import Segment


class Transfer:
    """What one transaction moves, in order. Make it inside of the transaction; it ends with `finish` or a rollback.

    `partitions` makes room as needed. Raises Fenced when the watermark is not at `after`: a second shuffler ran.
    """

    def __init__(
        self, connection: Connection, source: uuid.UUID, table: EventsTable, partitions: Partitions, after: int
    ) -> None:
        self._connection = connection
        self._source = source
        self._table = table
        self._partitions = partitions
        self._after = after
        self._epoch, self._before = self._lock_watermark()
        self._first = self._seq = log.next_seq(connection, table)
        self._insert = sql.SQL(statement("shuffle", "move_segment"))
        self.stopped_in: tuple[int, int] | None = None
        """The last segment moved from, and the ordinal to go on with."""

    @property
    def moved(self) -> int:
        """Events so far."""
        return self._seq - self._first

    def move(self, segment: Segment, ordinal: int, upto: int) -> None:
        """Rows of the segment from `ordinal` on, as far as their commit_lsn is at most `upto`, get the next seqs."""
        self._partitions.reserve(self._seq + segment.row_count)
        query = self._insert.format(events=self._table.identifier, segment=segments.table(segment.id))
        values = {
            "source": self._source,
            "epoch": self._epoch,
            "offset": self._seq - ordinal,
            "after": self._after,
            "upto": upto,
        }
        moved = self._connection.execute(query, values).rowcount
        self.stopped_in = segment.id, ordinal + moved
        self._seq += moved

    def finish(self, upto: int, drained: Sequence[int]) -> None:
        """Everything up to the transaction `upto` is moved, and these segments are done with."""
        if segments.mark_drained(self._connection, drained) != len(drained):
            raise Fenced("segments were given up by a new replication worker while they were moved")
        if self.moved:
            log.set_seq(self._connection, self._table, self._seq - 1)
            folding.fold_moved(self._connection, self._table, self._before, self.moved, self._seq - 1)
        if upto > self._after:
            self._set_watermark(upto)

    def _lock_watermark(self) -> tuple[int, int]:
        row = self._connection.execute(
            statement("shuffle", "lock_watermark"), {"source": self._source, "watermark": self._after}
        ).fetchone()
        if row is None:
            raise Fenced(f"the watermark of source {self._source} has left {self._after}: another shuffler has run")
        return int(row[0]), int(row[1])

    def _set_watermark(self, commit_lsn: int) -> None:
        query = sql.SQL(statement("shuffle", "advance_watermark")).format(
            events=self._table.identifier, sequence=sql.Literal(self._table.sequence.as_string(self._connection))
        )
        values = {"source": self._source, "commit_lsn": commit_lsn, "events": self.moved}
        row = self._connection.execute(query, values).fetchone()
        if self.moved and row is not None:
            log.notify(self._connection, self._table, row[0])
