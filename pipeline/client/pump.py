"""Works with the database for a queue: prefetches items, extends them, reports settled ones, gives back the rest."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg

from pipeline import refusals
from pipeline.client import exact_json
from pipeline.client.held_items import HeldItems, Item, collected
from pipeline.config.settings import describe
from pipeline.consumers.queue.consumers import CHANNEL
from pipeline.errors import (
    ConsumerError,
    DatabaseUnavailableError,
    PipelineError,
    StatementRefusedError,
    UnknownConsumerError,
    WrongConsumerKindError,
)
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.queries import statement

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds between two tries to receive items without a notification."""
LINGER_SECONDS = 0.01
"""Seconds that the pump waits for more settled items before it reports them to the database."""
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_SOON = 0.05
_ITEM = statement("client", "receive_items")
_JSON = {8: "record", 9: "changes", 10: "exact", 12: "transaction_annotations", 13: "metadata"}
_TRY_AGAIN = "40"
"""The class of SQLSTATEs of deadlocks and serialization failures, after which the pump tries again."""


class QueuePump:
    """Moves items between a queue and the database. `run` works in an event loop, and calls `notify_program` for news.

    The program's thread calls `wake`, `settle` and `close`. `error`: the error that ended the pump. After a lost
    connection the pump reconnects and reports settled items again; received items stay with this program.
    """

    def __init__(self, dsn: str, consumer: str, held: HeldItems, notify_program: Callable[[], None]) -> None:
        self._dsn = dsn
        self._consumer = consumer
        self._held = held
        self._notify_program = notify_program
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._closing = self._is_dry = False
        self._retry_at: float | None = None
        self._settling: defaultdict[tuple[str, float | None], list[UUID]] = defaultdict(list)
        self._delay = 0.0
        self.error: BaseException | None = None
        self.has_ended = False

    def wake(self) -> None:
        """Let the pump check for work; any thread may call this."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # closed: `error` says why
                loop.call_soon_threadsafe(self._awake.set)

    def settle(self, ack_id: UUID, done: bool, delay: float | None) -> None:
        """Acknowledge an item if `done`, else refuse it; the pump reports several items to the database together.

        Raises `error`, or ConsumerError if the queue is closed.
        """
        raise_error(self.error)
        if self.has_ended:
            raise ConsumerError(f"the queue of consumer {self._consumer!r} is closed: acknowledge items before that")
        held = self._held
        if done:
            held.acks.append(ack_id)
        else:
            held.nacks.append((ack_id, delay))
        held.nothing_left = False
        if len(held.acks) + len(held.nacks) == 1 or held.is_urgent:
            self.wake()

    def stop(self) -> None:
        """Let the program get no more items; any thread or signal handler may call this."""
        self._held.stopping = True
        self.wake()

    def close(self) -> None:
        """Report all settled items, give the others back, and end; any thread may call this."""
        self._closing = True
        self.stop()

    async def run(self) -> None:
        """Run until the pump is closed or cancelled, or ends with `error`."""
        self._loop = asyncio.get_running_loop()
        try:
            while not await self._work_over_connection():
                self._awake.clear()
                self._notify_program()  # the program may have stopped the queue
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._delay):
                        await self._awake.wait()
                self._notify_program()
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except Exception as error:  # the program raises it
            self.error = error
        finally:
            self.has_ended = True
            self._notify_program()

    async def _work_over_connection(self) -> bool:
        """Work over one connection until the queue is closed. Returns False if the connection is lost."""
        where = f"the queue of consumer {self._consumer!r} ({describe(self._dsn)})"
        try:
            connection = await connections.connect_async(
                self._dsn, name="pipeline queue", settings=session_settings.READER
            )
            async with connection:
                await self._serve(connection)
                return True
        except psycopg.Error as error:
            refused = refusals.from_sqlstate(error)
            if isinstance(refused, UnknownConsumerError | WrongConsumerKindError):
                raise refused from error
            if not (connections.is_gone(error) or (error.sqlstate or "").startswith(_TRY_AGAIN)):
                raise StatementRefusedError(
                    f"{where}: {connections.one_line(error)} (SQLSTATE {error.sqlstate})"
                ) from error
            lost = self._lost(DatabaseUnavailableError(f"{where} is not available: {connections.one_line(error)}"))
        logger.warning("%s; trying again", lost, extra={"action": "client.lost"})
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        return False

    def _lost(self, error: DatabaseUnavailableError) -> DatabaseUnavailableError:
        """Return the error, or raise it if the first connection failed or the queue is being closed."""
        left = sum(map(len, self._settling.values())) + len(self._held.acks) + len(self._held.nacks)
        if self._closing and left:
            raise DatabaseUnavailableError(f"{error}; {left} acknowledged or refused items may be delivered again")
        if self._closing or not self._delay:
            raise error
        return error

    async def _serve(self, connection: AsyncConnection) -> None:
        # `ack` waits for the disk regardless of this setting, and the session does nothing else.
        await connection.execute("set synchronous_commit = off")
        connection.add_notify_handler(lambda notify: self._notice(notify.payload))
        await connection.execute(f"listen {CHANNEL}")
        if not self._held.visibility:
            self._held.visibility = await self._ask(connection, "visibility_of")
        self._delay, self._is_dry = _FIRST_DELAY, False
        while True:
            self._awake.clear()
            if self._held.stopping:
                self._notify_program()
            await self._settle(connection)
            await self._renew(connection)
            if self._closing and not (self._held.acks or self._held.nacks):
                return
            if not await self._receive(connection):
                await self._idle(connection)

    async def _settle(self, connection: AsyncConnection) -> None:
        """Report all items that the program has settled to the database, with one statement for each kind.

        If the connection is lost, the statements are repeated over the next connection.
        """
        held, kinds = self._held, self._settling
        kinds["ack_items", None] += collected(held.acks)
        for ack_id, delay in collected(held.nacks):
            kinds["nack_items", delay].append(ack_id)
        kinds["give_back_items", None] += held.late() + (held.give_back() if held.stopping else [])
        for (kind, delay), ids in list(kinds.items()):
            if ids:
                settled = await self._ask(connection, kind, ack_ids=ids, delay=delay)
                if settled < len(ids) and kind != "give_back_items":
                    late = {"action": "client.late", "consumer": self._consumer, "items": len(ids) - settled}
                    logger.warning("items were acknowledged or refused too late, and are delivered again", extra=late)
            del kinds[kind, delay]

    async def _renew(self, connection: AsyncConnection) -> None:
        """Extend prefetched items in time; give them back if the program takes no items, or if it is too late."""
        due = self._held.renew_in()
        if due is None or due > 0:
            return
        if items := self._held.to_extend():
            until = time.monotonic() + self._held.visibility
            extended = await self._ask(connection, "extend_items", ack_ids=[item.ack_id for item in items])
            if extended == len(items):
                self._held.extended(items, until)
                return
            self._is_dry = (
                False  # some belong to another receiver by now, or are free again; the database does not say which
            )
        if ids := self._held.give_back():
            self._settling["give_back_items", None] += ids
            await self._settle(connection)

    async def _receive(self, connection: AsyncConnection) -> bool:
        """Receive items from the database. Returns False if there were none; the next try is when there may be some."""
        room = self._held.room()
        if not room or self._is_dry:
            return False
        self._is_dry, self._retry_at, began = True, None, time.monotonic()
        cursor = await connection.execute(_ITEM, self._values(most=room))
        items = [self._item(row, began) for row in await cursor.fetchall()]
        if not items:
            return False
        self._is_dry = False
        self._held.add(items)
        self._notify_program()
        return True

    def _item(self, row: tuple[Any, ...], began: float) -> Item:
        columns = list(row)
        columns += [exact_json.parse_all(columns, _JSON), began + self._held.visibility, self.settle]
        return Item(*columns)

    async def _idle(self, connection: AsyncConnection) -> None:
        """Wait until the pump may have something to do."""
        held = self._held
        if self._is_dry and self._retry_at is None:
            visible = await self._ask(connection, "next_visible")
            self._retry_at = time.monotonic() + min(POLL_SECONDS, POLL_SECONDS if visible is None else visible + _SOON)
        if not self._is_dry and held.room():
            return
        held.nothing_left = self._is_dry
        if held.acks or held.nacks:
            held.nothing_left = False
        elif held.waiting:
            self._notify_program()
        now = time.monotonic()
        times = [
            due for due in (held.renew_in(), self._retry_at and self._retry_at - now, POLL_SECONDS) if due is not None
        ]
        if not (held.acks or held.nacks):
            await self._wait_for_wakeup(connection, min(times))
        if (held.acks or held.nacks) and not held.is_urgent:
            self._awake.clear()
            await self._wait_for_wakeup(connection, LINGER_SECONDS)
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._is_dry, self._retry_at = False, None
        self._held.nothing_left = False

    async def _wait_for_wakeup(self, connection: AsyncConnection, seconds: float) -> None:
        """Wait for the program or a notification, at most `seconds`."""
        loop, socket = asyncio.get_running_loop(), connection.fileno()
        loop.add_reader(socket, self._awake.set)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._awake.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(socket)
        connection.pgconn.consume_input()
        while (note := connection.pgconn.notifies()) is not None:
            self._notice(note.extra)

    async def _ask(self, connection: AsyncConnection, name: str, **values: Any) -> Any:
        cursor = await connection.execute(statement("client", name), self._values(**values))
        row = await cursor.fetchone()
        return row[0] if row else None

    def _values(self, **values: Any) -> dict[str, Any]:
        return {"consumer": self._consumer, "visibility": self._held.visibility, **values}

    def _notice(self, payload: bytes | str) -> None:
        if payload in (self._consumer, self._consumer.encode()):
            self._is_dry = False


def raise_error(error: BaseException | None) -> None:
    """Raise the error that ended a pump; None: there is none.

    An error of the product is raised without the errors that caused it: its text says all that a user needs.
    """
    if isinstance(error, PipelineError):
        raise error.with_traceback(None) from None
    if error is not None:
        raise error
