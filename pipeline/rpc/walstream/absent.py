"""Sessions that have ended and owe something: their clients are waited for, and hold the position meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from pipeline.errors import PipelineError
from pipeline.rpc.walstream.store import Left, Store

logger = logging.getLogger(__name__)

HOLD_SECONDS = 60.0
"""How long the client of a session that has ended is waited for."""
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Absent:
    """`id`: of its row. `floor`: the seq up to which it needs nothing. `until`: by the monotonic clock."""

    id: int
    peer: str
    unacknowledged: int
    floor: int
    until: float


class Waiting:
    """Those that are waited for. What holds the position is `floors`; who is not waited for any more is forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._absent: list[Absent] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def floors(self) -> list[int]:
        """The seqs up to which they need nothing."""
        return [each.floor for each in self._absent]

    def add(self, session: int, peer: str, unacknowledged: int, floor: int) -> None:
        """A session has ended just now."""
        self._absent.append(Absent(session, peer, unacknowledged, floor, time.monotonic() + HOLD_SECONDS))
        self._begin()

    def replace(self, left: Iterable[Left], floor: int) -> None:
        """These are all that are waited for; none of them has what comes after `floor`."""
        now = time.monotonic()
        self._absent = [
            Absent(each.id, each.peer, each.unacknowledged, floor, now + HOLD_SECONDS - each.ended_for) for each in left
        ]
        self._begin()

    def close(self) -> None:
        """Whoever reads the cursor next waits for them; their rows stay."""
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._absent and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._let_go(), name="walstream absent")

    async def _let_go(self) -> None:
        while self._absent:
            await asyncio.sleep(_LOOK_SECONDS)
            for each in [absent for absent in self._absent if absent.until <= time.monotonic()]:
                with suppress(psycopg.Error, PipelineError, OSError):  # then at the next look
                    if await self._store.forget(each.id):
                        _warn(each)
                    self._absent = [absent for absent in self._absent if absent.id != each.id]


def _warn(absent: Absent) -> None:
    owed = f"{absent.unacknowledged:,} events" if absent.unacknowledged else "what it was sent last"
    logger.warning(
        "a walstream client (%s) has not come back within %g s: %s that it had not acknowledged may not come again",
        absent.peer,
        HOLD_SECONDS,
        owed,
        extra={"action": "walstream.given_up", "unacknowledged": absent.unacknowledged},
    )
