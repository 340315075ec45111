"""For explaining lag, once a second beside the worker: how far the source has written, what the worker waits for."""

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

from pipeline.capture.replication.stopwatch import Stopwatch
from pipeline.config.settings import Config
from pipeline.postgres import connections
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two looks."""
STORE_BYTES, STORE_SECONDS = 8_192, 5.0
"""A look is stored after so much WAL, or so long after the last one: in a cluster with both databases it writes WAL."""
THIN_SECONDS = 60.0
_PATIENCE = 0.5
LOOKS = 5
"""Over so many looks what the worker waits for is averaged."""


class Watched(Protocol):
    """What is asked of the worker. Every transaction that commits before `staged` is staged."""

    starved: Stopwatch
    blocked: Stopwatch

    @property
    def staged(self) -> int: ...


@dataclass(frozen=True)
class Look:
    """The source's end of WAL at a moment of its clock. `sending`: the walsender waited for its socket."""

    lsn: int
    written_at: datetime
    spilled_bytes: int | None
    sending: bool


@dataclass(frozen=True)
class _Effort:
    at: float
    starved: float
    blocked: float
    sending: bool


def session_name(source: uuid.UUID) -> str:
    """application_name of the sessions that look: while the source sees it at work, the samples are whole."""
    return f"pipeline lag {source}"


@asynccontextmanager
async def beside(config: Config, source: uuid.UUID, worker: Watched) -> AsyncIterator[None]:
    """Sample inside of the block. What goes wrong with it is tried again and never the worker's concern."""
    sampling = _Sampling(config, source, worker)
    task = asyncio.create_task(sampling.run(), name="lag samples")
    try:
        yield
    finally:
        await sampling.end(task)


class _Sampling:
    """Connects, samples, and connects again."""

    def __init__(self, config: Config, source: uuid.UUID, worker: Watched) -> None:
        self._dsns = config.source, config.database
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
        """A database that does not answer is not waited for."""
        self._ending.set()
        await asyncio.wait({task}, timeout=_PATIENCE)
        for connection in self._open:
            connections.hang_up(connection)
        await asyncio.wait({task}, timeout=_PATIENCE)
        task.cancel()

    async def _sample(self) -> None:
        name = session_name(self._source)
        for dsn in self._dsns:
            self._open.append(await connections.connect_async(dsn, name=name))
        await self._open[-1].execute("set synchronous_commit = off")  # nothing is lost by losing a sample
        at, store = self._open
        sampler = Sampler(at, store, self._source, self._slot, self._worker)
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


class Sampler:
    """Stores what it sees, as seldom as it may."""

    def __init__(
        self, at: AsyncConnection[Any], store: AsyncConnection[Any], source: uuid.UUID, slot: str, worker: Watched
    ) -> None:
        """`at` is a connection to the source, `store` one to the pipeline database."""
        self._at, self._store = at, store
        self._values = {"source": source, "slot": slot}
        self._worker = worker
        self._last: Look | None = None
        self._stored: Look | None = None
        self._moved = 0
        self._waiting = True
        self._efforts: deque[_Effort] = deque(maxlen=LOOKS)
        self._thin_at = 0.0

    async def sample(self) -> None:
        """One look at both databases, and perhaps a write."""
        async with self._at.cursor(row_factory=class_row(Look)) as cursor:
            look = await (
                await cursor.execute(statement("capture.replication", "look_at_wal"), self._values)
            ).fetchone()
        if look is None:
            return
        before, self._last = self._last, look
        worker = self._worker
        self._efforts.append(_Effort(time.monotonic(), worker.starved.seconds, worker.blocked.seconds, look.sending))
        if before is not None and look.lsn < before.lsn:  # another history: another epoch, or a crash
            before = self._stored = None
        if self._stored is None or look.lsn != self._stored.lsn:
            await self._store_written(before, look)
        if self._waiting or before is None or look.lsn != before.lsn:
            await self._store_load(before.lsn if before else 0)

    async def _store_written(self, before: Look | None, look: Look) -> None:
        stored = self._stored
        since = (look.written_at - stored.written_at).total_seconds() if stored else STORE_SECONDS
        if stored is not None and look.lsn - stored.lsn < STORE_BYTES and since < STORE_SECONDS:
            return
        quiet = since > STORE_SECONDS + SECONDS  # it was where it was stored until the look before
        await self._store_looks([before, look] if before and quiet else [look])
        self._stored = look
        if time.monotonic() >= self._thin_at:
            self._thin_at = time.monotonic() + THIN_SECONDS
            await self._store.execute(
                statement("capture.replication", "thin_written"), {**self._values, "now": look.written_at}
            )

    async def _store_looks(self, looks: Sequence[Look]) -> None:
        values = {
            "lsns": [look.lsn for look in looks],
            "times": [look.written_at for look in looks],
            "spilled": [look.spilled_bytes for look in looks],
        }
        await self._store.execute(statement("capture.replication", "store_written"), {**self._values, **values})

    async def _store_load(self, due: int) -> None:
        """`due`: what was written before the last look should be staged by now."""
        row = await (
            await self._store.execute(statement("capture.replication", "moved_position"), self._values)
        ).fetchone()
        moved = row[0] if row else None
        if moved is not None:
            self._moved = max(self._moved, moved)
        late = self._worker.staged < due
        if (late or moved is None) and len(self._efforts) > 1:
            await self._store.execute(
                statement("capture.replication", "store_load"), {**self._values, **self._shares()}
            )
        self._waiting = late or moved is None

    def _shares(self) -> dict[str, float]:
        first, last = self._efforts[0], self._efforts[-1]
        lasted = max(last.at - first.at, 0.001)
        return {
            "moved_lsn": self._moved,
            "starved": min(1.0, (last.starved - first.starved) / lasted),
            "blocked": min(1.0, (last.blocked - first.blocked) / lasted),
            "sending": sum(effort.sending for effort in self._efforts) / len(self._efforts),
        }
