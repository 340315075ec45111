"""The transfers of one shuffler, each of which goes on where the last one has stopped."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pipeline.postgres.connections import Connection
from pipeline.shuffle.batched_transaction import Together
from pipeline.shuffle.targets import Targets
from pipeline.shuffle.toast_fill import Filler
from pipeline.shuffle.transfer import Place, Transfer
from pipeline.staging import segments
from pipeline.staging.segments import Segment


class Transfers:
    """Begins transfers, and knows from which row of a segment on they have something to move."""

    def __init__(self, connection: Connection, source: uuid.UUID, targets: Callable[[], Targets]) -> None:
        """`targets`: asked for when a transfer begins, for they are opened with the first."""
        self._connection = connection
        self._source = source
        self._targets = targets
        self._filler = Filler(connection, source)
        self._stopped_in: tuple[int, int] | None = None
        self.folds = True
        """Whether there may be records consumers."""
        self.drained = 0
        """Segments that committed transfers are done with, and that nobody has emptied yet."""

    def begin(self, place: Place, statements: Together | None = None) -> Transfer:
        """Inside of the transaction that it is; without `statements` each goes by itself, at once."""
        statements = statements or Together(self._connection)
        targets = self._targets()
        return Transfer(self._connection, self._source, targets, self._filler, place, statements, folds=self.folds)

    def committed(self, transfer: Transfer, drained: int) -> int:
        """Remember where it has stopped, and that so many segments are done with; returns how many events it added."""
        self._stopped_in = transfer.stopped_in or self._stopped_in
        self.drained += drained
        return transfer.moved

    def forget(self) -> None:
        """What is known of partitions, of the next seq and of where one has stopped may not be true."""
        self._targets().forget()
        self._stopped_in = None

    def next_ordinal(self, segment: Segment, after: int, transfer: Transfer) -> int:
        """Of the first row to move; only a segment that an earlier shuffler moved in part has to be asked."""
        for stopped_in in (transfer.stopped_in, self._stopped_in):
            if stopped_in and stopped_in[0] == segment.id and segment.first_lsn <= after:
                return stopped_in[1]
        if segment.first_lsn > after:
            return segment.first_ordinal
        return segments.first_ordinal_after(self._connection, segment, after)
