"""One LISTEN connection for the whole process; it wakes everything in it that waits for events or items."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from pipeline.log.table import CHANNEL as EVENTS_CHANNEL
from pipeline.postgres import connections, session_settings

logger = logging.getLogger(__name__)

CONSUMERS_CHANNEL = "pipeline_consumers"
"""NOTIFY channel; the payload is the name of a consumer that may have something to receive."""
SESSION = "pipeline wakeup"
"""The beginning of the LISTEN connection's name; the port at which the process serves clients follows."""
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_NEW_EVENTS = " new events of "
"""The beginning of topics of events tables; a consumer's name has no space, so it never begins so."""


class WakeupSubscription:
    """A subscription that is notified when there may be something new, also between two waits."""

    def __init__(self, wakeups: WakeupListener) -> None:
        self._wakeups = wakeups
        self._notified = asyncio.Event()

    @property
    def closing(self) -> bool:
        """True if the process is about to end, so that the subscriber must not wait again."""
        return self._wakeups.closing

    def notify(self) -> None:
        """End the current wait, or the next one."""
        self._notified.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until notified, at most `seconds`; returns whether it was. Check `closing` before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._notified.wait()
        notified = self._notified.is_set()
        self._notified.clear()
        return notified


class WakeupListener:
    """Passes the notifications that `run` receives to the subscriptions.

    After the connection was lost all are notified, since notifications may have been missed. Subscribe first, then look
    for something new, then wait; otherwise what comes in between is missed.
    """

    def __init__(self, dsn: str, events_table: str, port: int | str) -> None:
        """`port`: the port at which this process serves clients; `pipeline check` reads it from the session's name."""
        self.closing = False
        self._name = f"{SESSION} {port}"
        self._dsn = dsn
        self._default = events_table
        self._subscriptions: defaultdict[str, set[WakeupSubscription]] = defaultdict(set)

    @contextmanager
    def for_consumer(self, name: str) -> Iterator[WakeupSubscription]:
        """Subscribe to new items of a consumer."""
        with self._subscribe(name) as subscription:
            yield subscription

    @contextmanager
    def for_events(self, *consumers: str, table: str | None = None) -> Iterator[WakeupSubscription]:
        """Subscribe to new events, and to notifications of these consumers. `table`: another one than the default."""
        with self._subscribe(_NEW_EVENTS + (table or self._default), *consumers) as subscription:
            yield subscription

    async def run(self) -> None:
        """Listen until cancelled, over a new connection whenever one is lost."""
        delay, has_warned = _FIRST_DELAY, False
        while True:
            try:
                async with await connections.connect_async(
                    self._dsn, name=self._name, settings=session_settings.SERVER
                ) as connection:
                    for channel in (CONSUMERS_CHANNEL, EVENTS_CHANNEL):
                        await connection.execute(f"listen {channel}".encode())
                    if has_warned:
                        logger.info("listening again", extra={"action": "api.listening"})
                    delay, has_warned = _FIRST_DELAY, False
                    self._notify_all()
                    await self._listen(connection)
            except (psycopg.Error, OSError) as error:
                if not has_warned:
                    lost = connections.unavailable(self._dsn, "pipeline database", error)
                    logger.warning("cannot listen for new events: %s", lost, extra={"action": "api.not_listening"})
                has_warned = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    def close(self) -> None:
        """The process is about to end: wake all subscriptions; none should wait again."""
        self.closing = True
        self._notify_all()

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        async for heard in connection.notifies():
            if heard.channel == CONSUMERS_CHANNEL:
                self._notify(heard.payload)
            elif (table := _table(heard.payload)) is not None:
                self._notify(_NEW_EVENTS + table)
            else:
                self._notify_all()

    @contextmanager
    def _subscribe(self, *topics: str) -> Iterator[WakeupSubscription]:
        subscription = WakeupSubscription(self)
        for topic in topics:
            self._subscriptions[topic].add(subscription)
        try:
            yield subscription
        finally:
            for topic in topics:
                self._subscriptions[topic].discard(subscription)
                if not self._subscriptions[topic]:
                    del self._subscriptions[topic]

    def _notify(self, topic: str) -> None:
        for subscription in self._subscriptions.get(topic, ()):
            subscription.notify()

    def _notify_all(self) -> None:
        for topic in self._subscriptions:
            self._notify(topic)


def _table(payload: str) -> str | None:
    """Return the events table that a notification names; None if it names none."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):  # any role that may connect may send what it likes
        return None
    table = content.get("table") if isinstance(content, dict) else None
    return table if isinstance(table, str) else None
