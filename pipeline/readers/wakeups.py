"""One LISTEN connection for a whole process; who waits for events or items is woken by it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from pipeline.log.table import CHANNEL as EVENTS_CHANNEL
from pipeline.postgres import connections

logger = logging.getLogger(__name__)

CONSUMERS_CHANNEL = "pipeline_consumers"
"""NOTIFY channel; the payload is the name of a consumer that may have something to receive."""
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_NEW_EVENTS = " new events"
"""A topic beside the consumers' names, none of which has a space."""


class Bell:
    """Rung when there may be something new. What happens between two waits is not missed."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._rung = asyncio.Event()

    @property
    def silenced(self) -> bool:
        """The process is about to end; nobody may wait any more."""
        return self._wakeups.closing

    def ring(self) -> None:
        """Wake who waits, or who waits next."""
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Until rung, or `seconds` at most; whether it was rung. Look at `silenced` before."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), max(seconds, 0.0))
        rung = self._rung.is_set()
        self._rung.clear()
        return rung


class Wakeups:
    """Hands what `run` hears to the bells. After the connection was lost all are rung: what was said is unknown.

    Take a bell first, then look, then wait; otherwise what comes in between is missed.
    """

    def __init__(self, dsn: str, events_table: str) -> None:
        self.closing = False
        self._dsn = dsn
        self._events_table = events_table
        self._bells: defaultdict[str, set[Bell]] = defaultdict(set)

    @contextmanager
    def of_consumer(self, name: str) -> Iterator[Bell]:
        """A bell for items of that consumer."""
        with self._bell(name) as bell:
            yield bell

    @contextmanager
    def of_events(self, *consumers: str) -> Iterator[Bell]:
        """A bell for new events, and for what is said of these consumers."""
        with self._bell(_NEW_EVENTS, *consumers) as bell:
            yield bell

    async def run(self) -> None:
        """Listen until cancelled, over a new connection whenever one is lost."""
        delay, told = _FIRST_DELAY, False
        while True:
            try:
                async with await _connect(self._dsn) as connection:
                    if told:
                        logger.info("listening again", extra={"action": "api.listening"})
                    delay, told = _FIRST_DELAY, False
                    self._ring_all()
                    await self._listen(connection)
            except (psycopg.Error, OSError) as error:
                if not told:
                    lost = connections.unavailable(self._dsn, "pipeline database", error)
                    logger.warning("nobody is woken: %s", lost, extra={"action": "api.not_listening"})
                told = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    def close(self) -> None:
        """The process is about to end: wake all; nobody should wait again."""
        self.closing = True
        self._ring_all()

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        async for heard in connection.notifies():
            if heard.channel == CONSUMERS_CHANNEL:
                self._ring(heard.payload)
            elif _table(heard.payload) in (self._events_table, None):
                self._ring(_NEW_EVENTS)

    @contextmanager
    def _bell(self, *topics: str) -> Iterator[Bell]:
        bell = Bell(self)
        for topic in topics:
            self._bells[topic].add(bell)
        try:
            yield bell
        finally:
            for topic in topics:
                self._bells[topic].discard(bell)
                if not self._bells[topic]:
                    del self._bells[topic]

    def _ring(self, topic: str) -> None:
        for bell in self._bells.get(topic, ()):
            bell.ring()

    def _ring_all(self) -> None:
        for topic in self._bells:
            self._ring(topic)


async def _connect(dsn: str) -> psycopg.AsyncConnection:
    connection = await connections.connect_async(dsn, name="pipeline wakeup")
    await connection.execute(f"listen {CONSUMERS_CHANNEL}")
    await connection.execute(f"listen {EVENTS_CHANNEL}")
    return connection


def _table(payload: str) -> str | None:
    """The events table that a notification speaks of; None when it does not say."""
    try:
        said = json.loads(payload)
    except ValueError:
        return None
    return str(said["table"]) if isinstance(said, dict) and "table" in said else None
