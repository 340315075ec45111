"""Moves the position of a cursor that a client reads: to acknowledged events, and beyond events outside its filter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pipeline.consumers.cursor.acknowledged_position import AcknowledgementTracker
from pipeline.consumers.cursor.claims import CursorClaim
from pipeline.consumers.cursor.feed import FeedFollower
from pipeline.consumers.cursor.leases import CursorLeases

IDLE_SECONDS = 30.0
"""Seconds without an acknowledgement after which the position skips events that the filter leaves out."""


class CursorReading:
    """The reading of one cursor by one client. Call `record_sent` before events are sent, `acknowledge` for each
    acknowledgement of the client, and then `store`, which moves the position.
    """

    def __init__(
        self,
        cursors: CursorLeases,
        claim: CursorClaim,
        follower: FeedFollower[Any],
        acknowledgements: AcknowledgementTracker,
        holds_back: Callable[[], bool] = lambda: False,
    ) -> None:
        """`holds_back`: returns True if events were read but are not sent yet."""
        self.claim = claim
        self._cursors = cursors
        self._follower = follower
        self._acknowledgements = acknowledgements
        self._holds_back = holds_back
        self._to_store: int | None = None
        self._acknowledged = asyncio.Event()
        self._storing = asyncio.Lock()

    def record_sent(self, seq: int, *, ends: bool) -> None:
        """Record that the events up to `seq` are about to be sent. `ends`: a transaction ends with this seq."""
        self._acknowledgements.record_sent(seq, ends=ends)

    def acknowledge(self, seq: int) -> None:
        """Acknowledge the events up to `seq`. Raises WrongArgumentError if `seq` is beyond the last sent event."""
        position = self._acknowledgements.acknowledge(seq)
        self._to_store = max(position or 0, self._to_store or 0)
        self._acknowledged.set()

    @property
    def is_settled(self) -> bool:
        """True if all sent events are acknowledged, and their position is stored."""
        return self._acknowledgements.last_sent <= self.claim.position

    async def wait_for_acknowledgement(self) -> None:
        """Wait until there may be a position to store, at most IDLE_SECONDS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self._acknowledged.wait()
        self._acknowledged.clear()

    async def store(self) -> int | None:
        """Store the newest acknowledgement, and return the position. It may be repeated after a cancellation.

        Without a new acknowledgement, returns None, and moves the position beyond events that the filter leaves out, so
        that retention need not wait. Raises ConsumerChangedError if another client reads the cursor now,
        UnknownConsumerError.
        """
        async with self._storing:
            to_store = self._to_store
            if to_store is None:
                await self._skip_filtered()
                return None
            if to_store > self.claim.position:
                await self._cursors.advance(self.claim, to_store)
            if self._to_store == to_store:
                self._to_store = None
            else:
                self._acknowledged.set()
            return self.claim.position

    async def _skip_filtered(self) -> None:
        skipped_to = self._follower.position
        if self.is_settled and self.claim.position < skipped_to and not self._holds_back():
            await self._cursors.advance(self.claim, skipped_to)
