"""Runs the main replication worker (worker 0), and the helper processes that share a backlog with it.

Worker 0 reads the stream in stretches. Without a catch-up there is one stretch without an end. A plan ends that
stretch where the first helper's part begins. Then worker 0 takes over one part after the other: first the rows that
the part's helper has staged, then the rest of the part, if any.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from pipeline.capture.catchup import copying, helper, limits, orphans, plan_reader, store
from pipeline.capture.catchup.backlog_meter import BacklogMeter
from pipeline.capture.catchup.plan import BacklogPart, split_backlog
from pipeline.capture.catchup.worker_pool import WorkerPool
from pipeline.capture.replication import lag_sampler, still_published
from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.replication.worker import WATCH_SECONDS, ReplicationWorker
from pipeline.capture.source import own_tables, slots, timeline
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import application_name
from pipeline.config.settings import Config
from pipeline.errors import ReadAgainError
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.log.writing import log_writer
from pipeline.log.writing.log_writer import LogWriter, WritingSettings
from pipeline.postgres.connections import Connection
from pipeline.process.child import POLL, Launch
from pipeline.process.signals import in_thread
from pipeline.wal import lsn

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 0.2
"""Seconds between two readings of the parts' progress."""
FAR_BEHIND = 16 * 1024 * 1024
"""Bytes: a slot that is further behind the stored position is advanced, without sending the WAL in between."""


class CatchUpCoordinator:
    """Runs the workers of one source until `stop` is called or something fails."""

    def __init__(
        self,
        config: Config,
        source: Connection,
        pipeline: Connection,
        staging: AsyncConnection[TupleRow],
        stored: ReplicationSource,
        publications: Sequence[str],
        launch: Launch,
        session_slots: Callable[[Connection], Sequence[str]],
        writing: WritingSettings,
    ) -> None:
        """Take over these connections: no other code may use them.

        `publications`: names of the replicated publications. `launch` starts a helper process. `session_slots`
        returns the slots of clients' sessions, for which walsenders are reserved. `writing`: the paths that batches
        may take into the log.
        """
        self._config = config
        self._source, self._pipeline, self._staging = source, pipeline, staging
        self._stored = stored
        self._publications = list(publications)
        self._writing = writing
        self._pool = WorkerPool(launch, partial(helper.task, config, self._publications))
        self._backlog = BacklogMeter(config, source, stored, session_slots)
        self._worker: ReplicationWorker | None = None
        self._wal_end: int | None = None
        self._claim: WorkerClaim | None = None
        self._stopping = False
        self._parts: list[BacklogPart] = []
        self._plan_connection: Connection | None = None
        """A separate connection for the plan, while a plan exists: other threads use `_pipeline`, inside of
        transactions."""
        self._plan_lock = asyncio.Lock()
        """Locked while the plan is stored or read."""
        self._reported: set[int] = set()

    def stop(self) -> None:
        """Stage and confirm the complete transactions, then return from `run`; the helpers do the same."""
        self._stopping = True
        self._pool.retire_all()
        if self._worker is not None:
            self._worker.stop()

    def bytes_behind(self) -> int | None:
        """Return how many bytes of WAL worker 0 is behind the source, as last measured; None if not known.

        Bytes that helpers read count, too.
        """
        if self._wal_end is None or self._worker is None:
            return None
        return max(0, self._wal_end - self._worker.first_unread)

    async def run(self, start: int, running: Callable[[], None]) -> None:
        """Run worker 0 and the helpers; returns after `stop`.

        `start`: the LSN to start the slot at; 0: the slot's own position. `running` is called when the stream has
        started.
        """
        await in_thread(orphans.remove_orphans, self._source, self._stored.slot)
        self._parts = plan_reader.read_plan(self._pipeline, self._stored.id)
        try:
            await _first_of(self._run_stretches(start, running), self._supervise())
        finally:
            await self._pool.end_all()
            if self._plan_connection is not None:
                self._plan_connection.close()

    async def _run_stretches(self, start: int, running: Callable[[], None]) -> None:
        while not self._stopping:
            await self._read_plan()
            self._claim = claim = await WorkerClaim.acquire(self._staging, self._stored.id)
            if self._parts and self._parts[0].complete:
                await self._take_over(claim, self._parts[1])
            else:
                try:
                    await self._stream(claim, start, running)
                except ReadAgainError as error:
                    logger.info("%s", error, extra={"action": "replication.read_again"})
            start = 0

    async def _stream(self, claim: WorkerClaim, start: int, running: Callable[[], None]) -> None:
        """Stream up to the first helper's part; without a plan, until stopped."""
        until = self._parts[0].until_lsn if self._parts else None
        await in_thread(self._free_slot, claim)
        stream = ReplicationStream(self._config.source, application_name(self._stored.id))
        writer: LogWriter | None = None
        try:
            timeline.require_same(self._stored, stream.identify())
            stream.start(self._stored.slot, start, self._publications)
            own = own_tables.read(self._source, self._pipeline, self._config.events_tables)
            await self._measure_wal_end()
            registry = RelationRegistry(self._source, self._pipeline, self._stored, self._publications, own=own)
            writer = await LogWriter.open(self._staging, claim, self._writing, behind=self.bytes_behind)
            self._worker = ReplicationWorker(stream, writer, registry, until)
            if self._stopping:
                self._worker.stop()
            running()
            async with lag_sampler.sample_lag(self._config, self._stored.id, self._worker):
                await self._worker.run()
        finally:
            self._worker = None
            stream.close()
            if writer is not None:
                await writer.close()

    def _free_slot(self, claim: WorkerClaim) -> None:
        """End the walsender of an earlier stretch, and advance the slot if a crash prevented that."""
        slot = slots.find(self._source, self._stored.slot)
        if slot is None:
            return
        slots.end_walsender(self._source, slot)
        behind = claim.position - (slot.confirmed_lsn or 0)
        if behind > FAR_BEHIND and limits.why_unsafe(self._source.info.server_version) is None:
            copying.advance_slot(self._source, self._stored.slot, claim.commit_lsn, claim.position)

    async def _take_over(self, claim: WorkerClaim, part: BacklogPart) -> None:
        """Give the part's staged rows to worker 0; while the part's helper is running, wait for the helper instead."""
        last = part.worker == self._parts[-1].worker  # before any wait, during which the plan is read again
        if not part.complete and self._pool.is_running(part.worker):
            if part.until_lsn is not None:
                await self._wait_for(part)
                return
            await self._pool.end(part.worker)
        self._pool.exclude(part.worker)
        other = await WorkerClaim.acquire(self._staging, self._stored.id, part.worker)
        await store.absorb_part(self._staging, other, claim)
        logger.info(
            "part %s is taken over",
            part.worker,
            extra={"action": "catchup.absorbed", "part": part.worker, "position": lsn.show(other.position)},
        )
        commit_lsn, position = max(claim.commit_lsn, other.commit_lsn), max(claim.position, other.position)
        await in_thread(copying.advance_slot, self._source, self._stored.slot, commit_lsn, position)
        if last:
            logger.info("caught up: from now on one slot reads the whole stream", extra={"action": "catchup.done"})

    async def _wait_for(self, part: BacklogPart) -> None:
        """Wait up to WATCH_SECONDS for the helper of the next part; worker 0 only checks what is published."""
        until = time.monotonic() + WATCH_SECONDS
        check = partial(still_published.require_still_published, self._source, self._pipeline, self._stored.id)
        await in_thread(check)
        while not self._stopping and time.monotonic() < until and self._pool.is_running(part.worker):
            if any(now.complete for now in self._parts if now.worker == part.worker):
                return
            await asyncio.sleep(POLL)

    async def _supervise(self) -> None:
        """Measure lag, plan, and keep helpers running, at the same time as `_run_stretches`."""
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
                self._pool.start_missing(self._parts[1:], self._backlog.most_helpers)
            await asyncio.sleep(min(POLL, self._config.catchup_interval))

    async def _measure(self) -> None:
        """Plan a catch-up if the lag is large enough."""
        worker, claim = self._worker, self._claim
        await self._measure_wal_end()
        if worker is None or claim is None or not worker.resumed or self._parts or self._stopping:
            return
        behind = await in_thread(self._backlog.read_lag, worker.first_unread)
        if behind is None:
            return
        if self._backlog.may_be_shared:
            worker.may_read.clear()  # leave the WAL to the helpers, which then begin sooner
        try:
            async with self._plan_lock:
                connection = await self._connect()
                allowed = await in_thread(self._backlog.limit_slots, connection, worker.first_unread)
                if worker is self._worker and not self._stopping:
                    parts = split_backlog(worker.first_unread, behind[0], allowed, behind[1])
                    await self._begin(worker, claim, parts)
        finally:
            worker.may_read.set()

    async def _measure_wal_end(self) -> None:
        """Measure where the source's WAL ends: from the first batch on, this decides whether a backlog becomes
        partitions.
        """
        if self._config.adopt_bytes is not None:
            self._wal_end = await in_thread(self._backlog.wal_end) or self._wal_end

    async def _begin(self, worker: ReplicationWorker, claim: WorkerClaim, parts: list[BacklogPart]) -> None:
        if not parts:
            return
        worker.stop_before(parts[1].from_lsn)  # first, while no transaction beyond has begun to arrive
        self._parts = parts
        self._pool.begin()
        self._reported.clear()
        self._backlog.most_helpers = len(parts) - 1
        connection = await self._connect()
        spans = [part.from_lsn - parts[0].from_lsn for part in parts[1:]]
        seqs = await in_thread(log_writer.reserve_part_seqs, connection, self._stored.id, self._writing, spans)
        others = [replace(part, first_seq=seq) for part, seq in zip(parts[1:], seqs, strict=True)]
        await in_thread(store.add_plan, connection, self._stored.id, claim.generation, others)
        bounds = [lsn.show(part.from_lsn) for part in parts]
        logger.info(
            "catching up: %s slots read at once", len(parts), extra={"action": "catchup.planned", "bounds": bounds}
        )

    async def _connect(self) -> Connection:
        if self._plan_connection is None:
            self._plan_connection = await in_thread(store.connect, self._config.database, "pipeline catch-up")
        return self._plan_connection

    async def _read_plan(self) -> None:
        async with self._plan_lock:
            if not self._parts:
                return
            connection = await self._connect()
            self._parts = await in_thread(plan_reader.read_plan, connection, self._stored.id)
            if not self._parts:
                connection.close()
                self._plan_connection = None
        for part in self._parts[1:]:
            if part.complete and part.worker not in self._reported:
                self._reported.add(part.worker)
                logger.info("part %s is staged", part.worker, extra={"action": "catchup.part_done"})


async def _first_of(main: Coroutine[None, None, None], other: Coroutine[None, None, None]) -> None:
    """Wait until `main` is done or one of the two fails, and cancel the other."""
    tasks = {asyncio.ensure_future(main), asyncio.ensure_future(other)}
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()
