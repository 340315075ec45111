"""A cursor while a client reads it: what was acknowledged is stored, and what its filter leaves out is passed over."""

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
"""How often the position of a client that has acknowledged everything skips events that its filter leaves out."""


class CursorReading:
    """`sent` what is about to be sent, and `acknowledge` what the client has; `store` then moves the position."""

    def __init__(
        self,
        cursors: CursorLeases,
        claim: CursorClaim,
        follower: FeedFollower[Any],
        acknowledgements: AcknowledgementTracker,
        holds_back: Callable[[], bool] = lambda: False,
    ) -> None:
        """`holds_back`: whether something that was read is not sent yet."""
        self.claim = claim
        self._cursors = cursors
        self._follower = follower
        self._acknowledgements = acknowledgements
        self._holds_back = holds_back
        self._wanted: int | None = None
        self._acknowledged = asyncio.Event()
        self._storing = asyncio.Lock()

    def sent(self, seq: int, *, ends: bool) -> None:
        """Events up to that seq are about to be sent; `ends`: the last of them ends its transaction."""
        self._acknowledgements.sent(seq, ends=ends)

    def acknowledge(self, seq: int) -> None:
        """The client has everything up to there. Raises WrongArgumentError beyond what was sent."""
        position = self._acknowledgements.position(seq)
        self._wanted = max(position or 0, self._wanted or 0)
        self._acknowledged.set()

    @property
    def settled(self) -> bool:
        """Whether everything that was sent is acknowledged, and stored."""
        return self._acknowledgements.last <= self.claim.position

    async def acknowledged(self) -> None:
        """Wait until there may be something to store, at most IDLE_SECONDS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self._acknowledged.wait()
        self._acknowledged.clear()

    async def store(self) -> int | None:
        """Store the newest acknowledgement, and return the position; None when there was none: then what the filter
        leaves out is passed over, so that retention need not wait. If cancelled, it may be repeated.

        Raises ConsumerChangedError when another client reads the cursor now, UnknownConsumerError.
        """
        async with self._storing:
            wanted = self._wanted
            if wanted is None:
                await self._skip()
                return None
            if wanted > self.claim.position:
                await self._cursors.advance(self.claim, wanted)
            if self._wanted == wanted:
                self._wanted = None
            else:
                self._acknowledged.set()
            return self.claim.position

    async def _skip(self) -> None:
        skipped_to = self._follower.position
        if self._acknowledgements.last <= self.claim.position < skipped_to and not self._holds_back():
            await self._cursors.advance(self.claim, skipped_to)
