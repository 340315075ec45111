"""The worker of one part: a replication worker that waits when it needs to know what earlier parts contain."""

from __future__ import annotations

import asyncio
import logging

from pipeline.capture.catchup.part_registry import PartRegistry
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.replication.worker import WATCH_SECONDS, ReplicationWorker
from pipeline.errors import DatabaseUnavailableError
from pipeline.log.writing.log_writer import LogWriter
from pipeline.process.signals import in_thread
from pipeline.wal.markers import is_marker
from pipeline.wal.messages import LogicalMessage, Message, RelationMessage

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""Seconds between two checks whether the part is reached, while the worker waits for that."""


class PartWorker(ReplicationWorker):
    """Stages a part. Until the part is reached, it stages only tables that were not altered in the backlog.

    At the first change of another table, the worker stages the complete transactions and waits. Once the part is
    reached, it continues as worker 0 does.
    """

    def __init__(
        self, stream: ReplicationStream, writer: LogWriter, registry: PartRegistry, until: int | None, catalog_xmin: str
    ) -> None:
        """`catalog_xmin`: that of the slot when it was copied."""
        super().__init__(stream, writer, registry, until)
        self._part_registry = registry
        self._open = until is None
        self._catalog_xmin = catalog_xmin
        self._reached = False
        self._waiting = False
        self._admitted: set[int] = set()

    async def _learn(self, message: Message, since: tuple[int, int] | None = None) -> None:
        while not self._reached and self._needs_lookup(message):
            if await self._admit(message):
                return
            await self._wait(message)
        await super()._learn(message, since)
        if isinstance(message, RelationMessage):
            self._admitted.add(message.oid)

    def _needs_lookup(self, message: Message) -> bool:
        if isinstance(message, LogicalMessage):
            return is_marker(message) or not self._tagger.knows(message)
        return isinstance(message, RelationMessage) and not self._part_registry.is_own(message)

    async def _admit(self, message: Message) -> bool:
        assert isinstance(message, RelationMessage | LogicalMessage)  # noqa: S101  _needs_lookup
        if is_marker(message):  # its table's version must be compared with the version before it
            return False
        async with self._database_lock:
            staged = await in_thread(self._part_registry.admit, message, self._tagger.batch.xid, self._catalog_xmin)
        if staged is None:
            return False
        if isinstance(message, RelationMessage):
            self._admitted.add(message.oid)
            self._tagger.learn(message, staged)
        else:
            self._tagger.learn(message, staged)
            self._tagger.feed(message)
        self._waiting = False
        return True

    async def _wait(self, message: Message) -> None:
        """Wait until the next check is due, or the part is reached."""
        await self._check_reached()
        if self._reached:
            return
        if not self._waiting:
            oid = message.oid if isinstance(message, RelationMessage) else 0
            logger.info(
                "a table was altered in the backlog: waiting for earlier parts",
                extra={"action": "catchup.waiting", "relation": oid},
            )
        self._waiting = True
        self._pump.wake()
        await asyncio.sleep(POLL_SECONDS)

    async def _check_reached(self) -> None:
        async with self._database_lock:
            if not self._reached and await in_thread(self._part_registry.is_reached):
                self._part_registry = await in_thread(self._part_registry.reload, self._admitted)
                self._registry = self._part_registry
                self._reached, self._waiting = True, False
                logger.info("reached", extra={"action": "catchup.reached"})

    def _ready(self) -> bool:
        return super()._ready() or (self._waiting and self._tagger.batch.has_whole)

    async def _watch_source(self) -> None:
        """Check for altered tables and for the part's turn; once the part is reached, watch the source as worker 0
        does.
        """
        while not self._reached:
            await asyncio.sleep(WATCH_SECONDS)
            await self._check_reached()
            if not self._reached and self._open:
                await self._require_unchanged()
        await super()._watch_source()

    async def _require_unchanged(self) -> None:
        async with self._database_lock:
            changed = await in_thread(self._part_registry.may_have_changed, self._admitted, self._catalog_xmin)
        if changed:  # the next attempt looks each of them up again
            raise DatabaseUnavailableError(
                "a table was altered while its changes were read ahead; the part is begun again"
            )
