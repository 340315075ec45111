"""Starts, restarts with backoff, and ends the helper processes of a catch-up, one for each part."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.process.child import POLL, ChildProcess, Launch

logger = logging.getLogger(__name__)

END_SECONDS = 20.0
"""Seconds that a helper has to end once it is asked to."""


class WorkerPool:
    """Manages the processes; what they do is up to `launch`. All methods but `end` and `end_all` return at once."""

    def __init__(self, launch: Launch, task: Callable[[int], str]) -> None:
        """`task` returns the first line of standard input for a part's helper."""
        self._launch = launch
        self._task = task
        self._children: dict[int, ChildProcess] = {}
        self._excluded: set[int] = set()

    def begin(self) -> None:
        """Begin a new plan: forget which parts of the last plan were left to worker 0."""
        self._excluded.clear()

    def start_missing(self, parts: Sequence[BacklogPart], most: int) -> None:
        """Start the missing helpers, at most `most` at once; must be called every POLL seconds."""
        for worker, child in self._children.items():
            self._check(worker, child)
        needed = [part.worker for part in parts if not part.complete and part.worker not in self._excluded]
        for worker in needed:
            child = self._children.setdefault(worker, self._child(worker))
            if child.process is None and time.monotonic() >= child.restart_at and self._running < most:
                child.start()

    @property
    def _running(self) -> int:
        return sum(child.process is not None for child in self._children.values())

    def _child(self, worker: int) -> ChildProcess:
        return ChildProcess(f"catch-up {worker}", self._launch, self._task(worker))

    def _check(self, worker: int, child: ChildProcess) -> None:
        code = child.ended()
        if code is None:
            return
        if worker in self._excluded or code == 0:
            child.forget()
            child.restart_at = time.monotonic() + 1.0
        elif not child.start_again(code):
            child.forget()
            self._excluded.add(worker)
            logger.warning("part %s of the backlog is left to worker 0", worker, extra={"action": "catchup.part_left"})

    def is_running(self, worker: int) -> bool:
        """True if the part's helper is running."""
        child = self._children.get(worker)
        return child is not None and child.lives

    def exclude(self, worker: int) -> None:
        """Start no more helpers for this part."""
        self._excluded.add(worker)

    def retire_all(self) -> None:
        """Ask all helpers to stage the complete transactions, and to end."""
        for worker, child in self._children.items():
            self._excluded.add(worker)
            child.retire(END_SECONDS)

    async def end(self, worker: int) -> None:
        """End the part's helper, and wait until it has staged the complete transactions and ended."""
        self._excluded.add(worker)
        if (child := self._children.get(worker)) is not None:
            await _wait_until_ended([child])

    async def end_all(self) -> None:
        """End all helpers, and wait until they have staged the complete transactions and ended."""
        self.retire_all()
        await _wait_until_ended(list(self._children.values()))
        self._children.clear()


async def _wait_until_ended(children: Sequence[ChildProcess]) -> None:
    for child in children:
        while child.lives:
            child.retire(END_SECONDS)
            await asyncio.sleep(POLL / 2)
        child.forget()
