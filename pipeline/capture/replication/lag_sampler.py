"""Samples that explain lag, once a second: how far the source has written, and what the worker waits for."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row

from pipeline.capture.replication.wait_timer import WaitTimer
from pipeline.config.settings import Config
from pipeline.postgres import connections, session_settings
from pipeline.postgres.queries import statement
from pipeline.process import supervised

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""Seconds between two samples."""
STORE_BYTES, STORE_SECONDS = 8_192, 5.0
"""A sample is stored after this much WAL or time: storing writes WAL, too, perhaps in the source's own cluster."""
THIN_SECONDS = 60.0
_END_TIMEOUT = 0.5
SAMPLES = 5
"""The samples over which the worker's waits are averaged."""


class SampledWorker(Protocol):
    """A worker as samples read it. Every transaction that commits before `staged` is staged."""

    starved: WaitTimer
    blocked: WaitTimer

    @property
    def staged(self) -> int: ...


@dataclass(frozen=True)
class WalSample:
    """The end of the source's WAL, at a time of the source's clock. `sending`: the walsender waited for its socket."""

    lsn: int
    written_at: datetime
    spilled_bytes: int | None
    sending: bool


@dataclass(frozen=True)
class _WorkerSample:
    at: float
    starved: float
    blocked: float
    sending: bool


def session_name(source: uuid.UUID) -> str:
    """Return the application_name of sampling sessions: while the source shows such a session, the samples have no
    gap.
    """
    return f"pipeline lag {source}"


@asynccontextmanager
async def sample_lag(config: Config, source: uuid.UUID, worker: SampledWorker) -> AsyncIterator[None]:
    """Sample while the block runs. After an error, sampling starts again; an error never reaches the worker."""
    sampler = _SamplerTask(config, source, worker)
    task = supervised.start_task("lag samples", sampler.run)
    try:
        yield
    finally:
        await sampler.end(task)


class _SamplerTask:
    """Connects, samples, and connects again after an error."""

    def __init__(self, config: Config, source: uuid.UUID, worker: SampledWorker) -> None:
        self._databases = (config.source, session_settings.SOURCE), (config.database, session_settings.SERVER)
        self._source, self._slot, self._worker = source, config.slot, worker
        self._ending = asyncio.Event()
        self._open: list[AsyncConnection[Any]] = []

    async def run(self) -> None:
        while not self._ending.is_set():
            try:
                await self._sample()
            except (psycopg.Error, OSError) as error:
                logger.debug("no lag samples: %s", connections.one_line(error), extra={"action": "lag.failed"})
            finally:
                await self._close()
            await self._pause()

    async def end(self, task: asyncio.Task[None]) -> None:
        """End sampling, without waiting for a database that does not answer."""
        self._ending.set()
        await asyncio.wait({task}, timeout=_END_TIMEOUT)
        for connection in self._open:
            connections.hang_up(connection)
        await asyncio.wait({task}, timeout=_END_TIMEOUT)
        task.cancel()

    async def _sample(self) -> None:
        name = session_name(self._source)
        for dsn, settings in self._databases:
            self._open.append(await connections.connect_async(dsn, name=name, settings=settings))
        await self._open[-1].execute("set synchronous_commit = off")  # a lost sample does no harm
        source_connection, store = self._open
        sampler = LagSampler(source_connection, store, self._source, self._slot, self._worker)
        while not self._ending.is_set():
            await sampler.sample()
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._ending.wait()

    async def _close(self) -> None:
        while self._open:
            await self._open.pop().close()


class LagSampler:
    """Takes samples, and stores no more of them than needed."""

    def __init__(
        self,
        source_connection: AsyncConnection[Any],
        store: AsyncConnection[Any],
        source: uuid.UUID,
        slot: str,
        worker: SampledWorker,
    ) -> None:
        """`store`: a connection to the pipeline database, for storing the samples. `source`: the id of the source."""
        self._source_connection, self._store = source_connection, store
        self._values = {"source": source, "slot": slot}
        self._worker = worker
        self._last: WalSample | None = None
        self._stored: WalSample | None = None
        self._moved_lsn = 0
        self._was_late = True
        """True if the worker was late at the last sample, or might have been."""
        self._worker_samples: deque[_WorkerSample] = deque(maxlen=SAMPLES)
        self._thin_at = 0.0

    async def sample(self) -> None:
        """Read both databases once, and store the sample if it is due."""
        async with self._source_connection.cursor(row_factory=class_row(WalSample)) as cursor:
            sample = await (
                await cursor.execute(statement("capture.replication", "sample_wal"), self._values)
            ).fetchone()
        if sample is None:
            return
        before, self._last = self._last, sample
        worker = self._worker
        self._worker_samples.append(
            _WorkerSample(time.monotonic(), worker.starved.seconds, worker.blocked.seconds, sample.sending)
        )
        if before is not None and sample.lsn < before.lsn:  # the WAL went back: another epoch, or a crash
            before = self._stored = None
        if self._stored is None or sample.lsn != self._stored.lsn:
            await self._store_written(before, sample)
        if self._was_late or before is None or sample.lsn != before.lsn:
            await self._store_load(before.lsn if before else 0)

    async def _store_written(self, before: WalSample | None, sample: WalSample) -> None:
        stored = self._stored
        seconds = (sample.written_at - stored.written_at).total_seconds() if stored else STORE_SECONDS
        if stored is not None and sample.lsn - stored.lsn < STORE_BYTES and seconds < STORE_SECONDS:
            return
        was_quiet = seconds > STORE_SECONDS + SECONDS  # the WAL's end had not moved until the sample before this one
        await self._store_samples([before, sample] if before and was_quiet else [sample])
        self._stored = sample
        if time.monotonic() >= self._thin_at:
            self._thin_at = time.monotonic() + THIN_SECONDS
            await self._store.execute(
                statement("capture.replication", "thin_written"), {**self._values, "now": sample.written_at}
            )

    async def _store_samples(self, samples: Sequence[WalSample]) -> None:
        values = {
            "lsns": [sample.lsn for sample in samples],
            "times": [sample.written_at for sample in samples],
            "spilled": [sample.spilled_bytes for sample in samples],
        }
        await self._store.execute(statement("capture.replication", "store_written"), {**self._values, **values})

    async def _store_load(self, due: int) -> None:
        """Store what the worker waits for, if the worker is late.

        `due`: WAL that was written before the last sample should be staged by now.
        """
        row = await (
            await self._store.execute(statement("log.staging.frontier", "moved_position"), self._values)
        ).fetchone()
        moved = row[0] if row else None  # everything before this LSN is in the log
        if moved is not None:
            self._moved_lsn = max(self._moved_lsn, moved)
        late = self._worker.staged < due
        if (late or moved is None) and len(self._worker_samples) > 1:
            await self._store.execute(
                statement("capture.replication", "store_load"), {**self._values, **self._shares()}
            )
        self._was_late = late or moved is None

    def _shares(self) -> dict[str, float]:
        first, last = self._worker_samples[0], self._worker_samples[-1]
        seconds = max(last.at - first.at, 0.001)
        return {
            "moved_lsn": self._moved_lsn,
            "starved": min(1.0, (last.starved - first.starved) / seconds),
            "blocked": min(1.0, (last.blocked - first.blocked) / seconds),
            "sending": sum(each.sending for each in self._worker_samples) / len(self._worker_samples),
        }
