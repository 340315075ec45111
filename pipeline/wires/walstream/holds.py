"""Holds of sessions that have ended: each keeps the position where it is for a minute in which the wire is served.

Clients have no name. So a session that begins may be that of any client that has gone, and begins where the one that
has acknowledged least would go on. Holds are rows, and are counted down also while no client is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import psycopg

from pipeline.errors import ConsumerError, PipelineError
from pipeline.process import supervised
from pipeline.wires.walstream.store import EndedHold, Store

logger = logging.getLogger(__name__)

HOLD_SECONDS = 60.0
"""How long the position waits for the client of a session that has ended, in seconds in which the wire is served."""
COUNT_SECONDS = 1.0
"""How often the seconds that remain are stored."""
LOOK_SECONDS = 30.0
"""How often a process that knows of no hold looks: another one may have died."""


class Holds:
    """Counts holds down from its construction until `close`: also those that an earlier process has left."""

    def __init__(self, store: Store, claim: Callable[[], str | None]) -> None:
        """`claim`: returns the claim by which this process reads the cursor now."""
        self._store, self._claim = store, claim
        self._changed = asyncio.Event()
        self._task = supervised.start_task("walstream holds", self._run)

    def wake(self) -> None:
        """Look for holds now, because a session may have left one."""
        self._changed.set()

    def close(self) -> None:
        """Stop counting: the next process that serves the wire goes on with what remains."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                remaining, ended = await self._store.count(self._claim(), HOLD_SECONDS, COUNT_SECONDS)
                for each in ended:
                    _report(each)
            except ConsumerError:  # another process counts, or there is no consumer
                remaining = 0
            except (psycopg.Error, PipelineError, OSError):
                remaining = 1  # perhaps: ask again soon
            if remaining:
                await asyncio.sleep(COUNT_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._changed.wait()


def _report(ended: EndedHold) -> None:
    if ended.unacknowledged:
        logger.warning(
            "a walstream client (%s) has not come back within %g s: %s events that it had not acknowledged may not come"
            " again",
            ended.peer,
            HOLD_SECONDS,
            f"{ended.unacknowledged:,}",
            extra={"action": "walstream.given_up", "unacknowledged": ended.unacknowledged},
        )
