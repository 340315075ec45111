"""Move a large transaction while it is still being staged, in one transaction that commits at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import psycopg

from pipeline.log.shuffling.transfer import LogWatermark, RowTransfer, TransferFactory
from pipeline.log.staging.segments import Segment, StagingState
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

AHEAD_SEGMENTS = 4
"""Number of full segments of an incomplete transaction from which moving starts before its end is staged."""
AHEAD_TIMEOUT = 3.0
"""Seconds without another segment after which what was moved ahead is rolled back, so that no snapshot is held."""
AHEAD_POLL = 0.01


class LargeTransactionMover:
    """Moves a transaction before its end is staged.

    If the end does not arrive in time, all is rolled back, and the transaction is moved after it is staged completely.

    `read_state` returns what `pipeline.log.staging.segments.read_state` does. `stopping` returns True if the shuffler
    must stop; it is called while the mover waits for segments.
    """

    def __init__(
        self,
        connection: Connection,
        transfers: TransferFactory,
        read_state: Callable[[], tuple[StagingState | None, list[Segment]]],
        stopping: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._transfers = transfers
        self._read_state = read_state
        self._stopping = stopping
        self._rolled_back_lsn = 0

    def move(self, now: StagingState, pending: Sequence[Segment]) -> int:
        """Start moving the open transaction, if it is a large one, and follow it to its end.

        Returns the number of events added; -1 when there is no such transaction, or its end did not come in time.
        """
        full = [segment for segment in pending if segment.full and segment.last_lsn > now.watermark]
        if len(full) < AHEAD_SEGMENTS or full[-1].last_lsn == self._rolled_back_lsn:
            return -1
        commit_lsn = full[-1].last_lsn
        self._transfers.forget()
        try:
            result = self._move(now, commit_lsn)
        except psycopg.Error as error:
            if not connections.is_poison(error):
                raise
            result = None  # the shuffler finds the row when the transaction is complete
        self._transfers.forget()
        if result is None:
            self._rolled_back_lsn = commit_lsn
            return -1
        return self._transfers.committed(*result)

    def _move(self, now: StagingState, commit_lsn: int) -> tuple[RowTransfer, int] | None:
        """Return the committed transfer and the number of segments that it drained; None if it was rolled back."""
        with self._connection.transaction():
            transfer = self._transfers.begin(LogWatermark(now.epoch, now.watermark))
            drained = self._follow(transfer, now, commit_lsn)
            if drained is None:
                raise psycopg.Rollback
            transfer.finish(commit_lsn, drained)
        return None if drained is None else (transfer, len(drained))

    def _follow(self, transfer: RowTransfer, at_begin: StagingState, commit_lsn: int) -> list[int] | None:
        """Move segments of the open transaction as they fill. Returns those to drain, or None to roll back."""
        moved: set[int] = set()
        deadline = time.monotonic() + AHEAD_TIMEOUT
        while True:
            now, segments = self._read_state()
            if now is None or now.generation != at_begin.generation or self._stopping():
                return None
            whole = now.complete >= commit_lsn
            pending = [segment for segment in segments if segment.first_lsn <= commit_lsn]
            for segment in _movable(pending, whole=whole):
                if segment.id not in moved and segment.last_lsn > at_begin.watermark:
                    ordinal = self._transfers.next_ordinal(segment, at_begin.watermark, transfer)
                    transfer.move(segment, ordinal, commit_lsn)
                    moved.add(segment.id)
                    deadline = time.monotonic() + AHEAD_TIMEOUT
            if whole:
                return [segment.id for segment in pending if segment.full and segment.last_lsn <= commit_lsn]
            if time.monotonic() > deadline:
                return None
            time.sleep(AHEAD_POLL)


def _movable(pending: Sequence[Segment], *, whole: bool) -> Iterator[Segment]:
    """Return the segments that may be moved: those before the first one that may still get rows."""
    return iter(pending) if whole else takewhile(lambda each: each.full, pending)
