"""The transfers of one shuffler, each of which continues where the last one stopped."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pipeline.log.shuffling.targets import Targets
from pipeline.log.shuffling.toast_fill import Filler
from pipeline.log.shuffling.transfer import Place, Transfer
from pipeline.log.staging import segments
from pipeline.log.staging.segments import Segment
from pipeline.log.table import EventsTable
from pipeline.postgres.batched_transaction import StatementBatch
from pipeline.postgres.connections import Connection


class Transfers:
    """Begins transfers, and knows the first row of a segment that is not moved yet."""

    def __init__(self, connection: Connection, source: uuid.UUID, targets: Callable[[], Targets]) -> None:
        """`targets` is called when a transfer begins: the targets are opened with the first one."""
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = Filler(connection, source)
        self._stopped_in: tuple[int, int] | None = None
        self.drained = 0
        """Number of segments that committed transfers have drained, and that are not emptied yet."""

    @property
    def default(self) -> EventsTable:
        """The events table of what no route matches."""
        return self._targets().default.table

    @property
    def has_routes(self) -> bool:
        """Whether changes go to other events tables, too."""
        return bool(self._targets().routes)

    def attached(self, first: int, last: int) -> None:
        """Instead of a move: tables with these seqs became partitions of the default table."""
        self._targets().default.attached(first, last)

    def begin(self, place: Place, statements: StatementBatch | None = None) -> Transfer:
        """Begin one inside of its transaction; without `statements` each statement is sent at once."""
        statements = statements or StatementBatch(self._connection)
        targets = self._targets()
        return Transfer(self._connection, self._source, targets, self._filler, place, statements)

    def committed(self, transfer: Transfer, drained: int) -> int:
        """Remember where it stopped, and that it drained so many segments; returns the number of events it added."""
        self._stopped_in = transfer.stopped_in or self._stopped_in
        self.drained += drained
        return transfer.moved

    def forget(self) -> None:
        """Drop what is known of partitions, the next seq and where the last one stopped: it may be wrong."""
        self._targets().forget()
        self._stopped_in = None

    def next_ordinal(self, segment: Segment, after: int, transfer: Transfer) -> int:
        """The ordinal of the first row to move. Only a segment that an earlier shuffler moved in part is read."""
        for stopped_in in (transfer.stopped_in, self._stopped_in):
            if stopped_in and stopped_in[0] == segment.id and segment.first_lsn <= after:
                return stopped_in[1]
        if segment.first_lsn > after:
            return segment.first_ordinal
        return segments.first_ordinal_after(self._connection, segment, after)
