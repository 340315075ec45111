"""The worker's writing task: stages what has arrived, makes it durable and confirms it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pipeline.capture.replication.batch_builder import BatchBuilder
from pipeline.capture.replication.commit_pace import CommitPace
from pipeline.capture.replication.confirm_rule import CONFIRM_EVERY, PACE, ConfirmRule
from pipeline.capture.replication.progress_reporter import ProgressReporter
from pipeline.capture.replication.wait_timer import WaitTimer
from pipeline.log.writing.log_writer import LogWriter, WriteResult
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

HELD_EVERY = 0.1
"""Seconds between two checks whether rows taken from a backlog can be stored, if nothing arrives."""
BUFFER_BYTES = 8_000_000
"""If rows of more bytes wait, reading stops until staging has caught up: this bounds the worker's memory."""


class StagingPump:
    """Stages what `batch` has collected when `ready` returns True; otherwise moves the position by the confirm rule."""

    def __init__(
        self,
        batch: BatchBuilder,
        writer: LogWriter,
        confirm_rule: ConfirmRule,
        reporter: ProgressReporter,
        ready: Callable[[], bool],
        before: Callable[[int], Awaitable[None]],
    ) -> None:
        """`ready` returns True if the collected rows should be staged now.

        `before` is awaited before rows from an LSN on are staged.
        """
        self._batch = batch
        self._writer = writer
        self._confirm_rule = confirm_rule
        self._reporter = reporter
        self._ready = ready
        self._before = before
        self._work = asyncio.Event()
        self._space = asyncio.Event()
        self._begun = asyncio.Event()
        self._stopping = False
        self._pace = CommitPace()
        self._next_at = 0.0
        self.blocked = WaitTimer()
        """Adds up how long `wait_for_space` has waited."""

    def wake(self) -> None:
        """Wake the pump if there is something to do; most keepalives change nothing, and need no turn of the loop."""
        if (
            self._ready()
            or self._confirm_rule.held
            or self._confirm_rule.is_wanted
            or self._confirm_rule.is_due(time.monotonic())
        ):
            self._work.set()

    def offer(self) -> None:
        """Wake the pump if there is something to stage."""
        if self._ready():
            self._work.set()

    def begin(self) -> None:
        """Allow storing from now on."""
        self._begun.set()

    def stop(self) -> None:
        """Let `run` return once the complete transactions are staged and confirmed."""
        self._stopping = True
        self._begun.set()
        self._work.set()

    async def wait_for_space(self) -> None:
        """Wait until there is space for more rows."""
        while self._batch.size >= BUFFER_BYTES:
            self._space.clear()
            with self.blocked:
                await self._space.wait()

    async def run(self) -> None:
        """Stage from `begin` until `stop`."""
        confirm_at = 0.0
        await self._begun.wait()
        if not self._confirm_rule.resumed:
            return
        while not (self._stopping and not self._batch.has_whole):
            _require_not_cancelled()
            await self._wait_for_work()
            if self._ready() or (self._stopping and self._batch.has_whole):
                started = time.monotonic()
                rows = await self._stage(durable=started >= confirm_at)
                if started >= confirm_at:
                    confirm_at = started + CONFIRM_EVERY
                self._next_at = started + self._pace.after(rows, stretches=self._writer.writes_directly)
            elif (await self._settle()).holds:
                await asyncio.sleep(PACE)  # the wanted position is stored later; let other tasks run meanwhile
            elif (position := self._confirm_rule.due(time.monotonic())) is not None:
                await self._store(position)
        await self._settle(finish=True)
        if (position := self._confirm_rule.due_at_end()) is not None:
            await self._store(position)
        logger.info(
            "drained", extra={"action": "replication.drained", "confirmed": lsn.show(self._confirm_rule.confirmed)}
        )

    async def _wait_for_work(self) -> None:
        """Wait for something to do; rows to stage also wait until the pace of commits allows the next commit."""
        self._work.clear()
        if not (self._ready() or self._stopping or self._confirm_rule.is_wanted):
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_EVERY if self._confirm_rule.held else CONFIRM_EVERY):
                    await self._work.wait()
        if self._ready() and (pause := self._next_at - time.monotonic()) > 0:
            await asyncio.sleep(pause)

    async def _stage(self, *, durable: bool) -> int:
        """Stage the collected rows; returns how many there were."""
        batch = self._batch.take_batch() if self._writer.may_split else self._batch.take_whole()
        if batch is None:
            return 0
        self._space.set()
        if batch.is_idle:
            self._confirm_rule.stage(batch.position or 0, empty=True)
            return 0
        await self._before(batch.first_lsn)
        stored = await self._writer.append(batch, durable=durable)
        self._follow(stored)
        if durable and stored.is_durable:
            self._reporter.confirm(stored.position)
        logger.debug("staged", extra={"action": "replication.staged", "rows": len(batch.rows)})
        return len(batch.rows)

    async def _settle(self, *, finish: bool = False) -> WriteResult:
        """Store what the writer holds of a backlog that has ended; with `finish`, all its complete transactions."""
        stored = await self._writer.settle(finish=finish)
        self._follow(stored)
        return stored

    def _follow(self, stored: WriteResult) -> None:
        """Note that everything that was taken is written, and stored up to the result's position."""
        self._confirm_rule.held = stored.holds
        self._confirm_rule.stage(stored.position)

    async def _store(self, position: int) -> None:
        """Make durable what was staged, and move the position past WAL that holds no changes for us."""
        stored = await self._writer.advance(position)
        self._follow(stored)
        self._reporter.confirm(stored.position)


def _require_not_cancelled() -> None:
    """Raise a cancellation that arrived together with an awaited result.

    Python before 3.12 loses such a cancellation (wait_for, gh-86296).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
