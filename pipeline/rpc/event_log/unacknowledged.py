"""Consumers of calls that have sent all there was and ended: for a while their clients may still acknowledge."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from pipeline.consumers.cursor.reading import Reading

KEPT_SECONDS = 30.0
"""How long after the end of a call what it sent can be acknowledged; until then nobody else reads the consumer."""
_LOOK_SECONDS = 0.05


class Unacknowledged:
    """Those of this process, by the consumer's name."""

    def __init__(self) -> None:
        self._kept: dict[str, asyncio.Task[None]] = {}

    def keep(self, reading: Reading, held: AsyncExitStack) -> None:
        """`held`: what the call held; closed once all is acknowledged, the claim has ended, or the time is over."""
        self._kept[reading.claim.name] = asyncio.create_task(_keep(reading, held), name="unacknowledged")

    async def end(self, consumer: str) -> None:
        """Somebody reads it again through this process."""
        if (task := self._kept.pop(consumer, None)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """All of them end."""
        for consumer in list(self._kept):
            await self.end(consumer)


async def _keep(reading: Reading, held: AsyncExitStack) -> None:
    async with held:
        until = asyncio.get_running_loop().time() + KEPT_SECONDS
        while not reading.settled and asyncio.get_running_loop().time() < until:
            done, _ = await asyncio.wait([reading.claim.ended], timeout=_LOOK_SECONDS)
            if done:
                return
