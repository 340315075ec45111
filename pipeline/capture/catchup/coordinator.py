"""Worker 0 from one stretch of the stream to the next, and the helpers that share a backlog with it.

While no catch-up is going on there is one stretch without an end. A plan ends it where the first part begins; from then
on worker 0 takes over one part after the other: what its helper has staged, then the rest of it, if there is one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.catchup import copying, helper, limits, orphans, plan_reader, store
from pipeline.capture.catchup.lag import Lag
from pipeline.capture.catchup.plan import Part, split
from pipeline.capture.catchup.worker_pool import WorkerPool
from pipeline.capture.replication import lag_sampler, prepare
from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.replication.worker import WATCH_SECONDS, ReplicationWorker
from pipeline.capture.source import slots
from pipeline.capture.source.sources import Source
from pipeline.config.settings import Config
from pipeline.postgres.connections import Connection
from pipeline.process.child import POLL, Launch
from pipeline.process.signals import in_thread
from pipeline.staging.writer import Writer
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 0.2
"""Between two looks at how far the parts are."""
FAR_BEHIND = 16 * 1024 * 1024
"""Bytes that the slot may be behind our position before it is moved without sending them."""


class Coordinator:
    """Runs until `stop` is called, or something fails."""

    def __init__(
        self,
        config: Config,
        source: Connection,
        pipeline: Connection,
        staging: AsyncConnection[TupleRow],
        stored: Source,
        publications: Sequence[str],
        launch: Launch,
    ) -> None:
        """`publications`: those that are replicated. `launch` begins a helper. The connections are ours alone."""
        self._config = config
        self._source, self._pipeline, self._staging = source, pipeline, staging
        self._stored = stored
        self._publications = list(publications)
        self._pool = WorkerPool(launch, partial(helper.task, config, self._publications))
        self._lag = Lag(config, source, stored)
        self._worker: ReplicationWorker | None = None
        self._writer: Writer | None = None
        self._stopping = False
        self._parts: list[Part] = []
        self._planned: Connection | None = None
        """For the plan, while there is one: the other connection is used inside of transactions, by other threads."""
        self._plan = asyncio.Lock()
        """Held while the plan is written or read."""
        self._told: set[int] = set()

    def stop(self) -> None:
        """Stage and confirm what is whole, then return from `run`; the helpers do the same."""
        self._stopping = True
        self._pool.retire_all()
        if self._worker is not None:
            self._worker.stop()

    async def run(self, start: int, running: Callable[[], None]) -> None:
        """`start`: from where the slot is to send at first, 0 when that is its own business; `running` is called when
        it does.
        """
        await in_thread(orphans.remove, self._source, self._stored.slot)
        self._parts = plan_reader.read(self._pipeline, self._stored.id)
        try:
            await _first_of(self._go_on(start, running), self._look_after())
        finally:
            await self._pool.end_all()
            if self._planned is not None:
                self._planned.close()

    async def _go_on(self, start: int, running: Callable[[], None]) -> None:
        while not self._stopping:
            await self._read_plan()
            self._writer = writer = await Writer.claim(self._staging, self._stored.id)
            if self._parts and self._parts[0].complete:
                await self._take_over(writer, self._parts[1])
            else:
                await self._stream(writer, start, running)
            start = 0

    async def _stream(self, writer: Writer, start: int, running: Callable[[], None]) -> None:
        """Up to the first part, or without an end."""
        until = self._parts[0].until_lsn if self._parts else None
        await in_thread(self._free_slot, writer)
        stream = ReplicationStream(self._config.source, self._stored.id)
        try:
            stream.start(self._stored.slot, start, self._publications)
            registry = RelationRegistry(self._source, self._pipeline, self._stored, self._publications)
            self._worker = ReplicationWorker(stream, writer, registry, until)
            if self._stopping:
                self._worker.stop()
            running()
            logger.info("streaming", extra={"action": "replication.streaming", "slot": self._stored.slot})
            async with lag_sampler.sample_lag(self._config, self._stored.id, self._worker):
                await self._worker.run()
        finally:
            self._worker = None
            stream.close()

    def _free_slot(self, writer: Writer) -> None:
        """After an earlier stretch of ours; and not far behind, where that was not done before a crash."""
        slot = slots.find(self._source, self._stored.slot)
        if slot is None:
            return
        slots.end_walsender(self._source, slot)
        behind = writer.position - (slot.confirmed_lsn or 0)
        if behind > FAR_BEHIND and limits.unsafe(self._source.info.server_version) is None:
            copying.follow(self._source, self._stored.slot, writer.commit_lsn, writer.position)

    async def _take_over(self, writer: Writer, part: Part) -> None:
        """The first part becomes worker 0's, as far as it is staged; waits a while where its helper is at work."""
        if not part.complete and self._pool.at_work(part.worker):
            if part.until_lsn is not None:
                await self._wait_for(part)
                return
            await self._pool.end(part.worker)
        self._pool.leave(part.worker)
        last = part.until_lsn is None
        other = await Writer.claim(self._staging, self._stored.id, part.worker)
        await store.absorb(self._staging, self._stored.id, part.worker, other.generation, writer.generation)
        logger.info(
            "part %s is ours",
            part.worker,
            extra={"action": "catchup.absorbed", "part": part.worker, "position": lsn.show(other.position)},
        )
        commit_lsn, position = max(writer.commit_lsn, other.commit_lsn), max(writer.position, other.position)
        await in_thread(copying.follow, self._source, self._stored.slot, commit_lsn, position)
        if last:
            logger.info("caught up: one slot reads all again", extra={"action": "catchup.done"})

    async def _wait_for(self, part: Part) -> None:
        """A while, for the helper at the part that comes next: all that is missing is a look at what is published."""
        until = time.monotonic() + WATCH_SECONDS
        check = partial(prepare.require_still_published, self._source, self._pipeline, self._stored.id)
        await in_thread(check)
        while not self._stopping and time.monotonic() < until and self._pool.at_work(part.worker):
            if any(now.complete for now in self._parts if now.worker == part.worker):
                return
            await asyncio.sleep(POLL)

    async def _look_after(self) -> None:
        """Measures lag, plans, and keeps helpers at work, beside all that `_go_on` does."""
        measure_at = refresh_at = 0.0
        while True:
            now = time.monotonic()
            if now >= measure_at:
                measure_at = now + self._config.catchup_interval
                await self._measure()
            if self._parts and now >= refresh_at:
                refresh_at = now + REFRESH_SECONDS
                await self._read_plan()
            if not self._stopping:
                self._pool.look_after(self._parts[1:], self._lag.most_helpers)
            await asyncio.sleep(min(POLL, self._config.catchup_interval))

    async def _measure(self) -> None:
        """Plan a catch-up when it is time for one."""
        worker, writer = self._worker, self._writer
        if worker is None or writer is None or not worker.resumed or self._parts or self._stopping:
            return
        behind = await in_thread(self._lag.behind, worker.begun)
        if behind is None:
            return
        async with self._plan:
            connection = await self._connect()
            allowed = await in_thread(self._lag.slots, connection, worker.begun)
            if worker is self._worker and not self._stopping:
                await self._begin(worker, writer, split(worker.begun, behind[0], allowed))

    async def _begin(self, worker: ReplicationWorker, writer: Writer, parts: list[Part]) -> None:
        if not parts:
            return
        worker.end_at(parts[1].from_lsn)  # before anything else happens: it is beyond all that has begun
        self._parts = parts
        self._pool.begin()
        self._told.clear()
        self._lag.most_helpers = len(parts) - 1
        connection = await self._connect()
        await in_thread(store.add, connection, self._stored.id, writer.generation, parts[1:])
        bounds = [lsn.show(part.from_lsn) for part in parts]
        logger.info("behind: %s slots read at once", len(parts), extra={"action": "catchup.planned", "bounds": bounds})

    async def _connect(self) -> Connection:
        if self._planned is None:
            self._planned = await in_thread(store.connect, self._config.database, "pipeline catch-up")
        return self._planned

    async def _read_plan(self) -> None:
        async with self._plan:
            if not self._parts:
                return
            connection = await self._connect()
            self._parts = await in_thread(plan_reader.read, connection, self._stored.id)
            if not self._parts:
                connection.close()
                self._planned = None
        for part in self._parts[1:]:
            if part.complete and part.worker not in self._told:
                self._told.add(part.worker)
                logger.info("part %s is staged", part.worker, extra={"action": "catchup.part_done"})


async def _first_of(main: Coroutine[None, None, None], beside: Coroutine[None, None, None]) -> None:
    """Until `main` is done or one of them fails; the other is cancelled."""
    tasks = {asyncio.ensure_future(main), asyncio.ensure_future(beside)}
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()
