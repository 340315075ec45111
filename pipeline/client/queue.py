"""`Queue`, a worker's side of a records consumer: `for item in queue: with item: …`."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType

from pipeline.client.held_items import HeldItems, Item
from pipeline.client.pump import QueuePump
from pipeline.client.sigterm import SigtermHandler
from pipeline.errors import ConsumerError

_CLOSE_SECONDS = 15.0


def held_items(ahead: int, visibility: float | None) -> HeldItems:
    """Raises ConsumerError for what cannot be."""
    if not 1 <= ahead <= 1000:
        raise ConsumerError(f"ahead is {ahead}: give 1 to 1000")
    if visibility is not None and not visibility > 0:
        raise ConsumerError(f"visibility is {visibility}: give seconds, more than 0, or None for the consumer's")
    return HeldItems(ahead, visibility)


class Queue:
    """The items of the records consumer `consumer`, for one thread, which settles each item: see `Item`.

    Items are taken ahead, as many as the program handles in a third of their visibility, at most `ahead`, and
    acknowledged together: an acknowledgement is on disk some milliseconds later, and all are when `close` returns. An
    item that the program gets is its own for two thirds of the visibility at least, a third if the database was away.
    What was taken ahead is made longer while the program comes for items, and else given back: as if it had never
    been delivered. `visibility`: seconds, None: the consumer's. The loop ends after `wait` seconds without an item,
    None: never; and by `stop`.

    It connects at the first item, and then a thread of its own talks with the database, until `close`, the end of a
    `with queue:` block, or of the program. A lost connection is made again, with a warning in the log.

    SIGTERM: used in the main thread of a program that has no handler for it, the queue sets one: the loop ends behind
    the item in hand, and when the queue is closed the program ends as it would have. Not with `on_sigterm=False`.

    The loop raises DatabaseUnavailableError when the first connection fails, UnknownConsumerError,
    WrongConsumerKindError, and StatementRefusedError with what else the database refuses.
    """

    def __init__(
        self,
        dsn: str,
        consumer: str,
        *,
        ahead: int = 100,
        visibility: float | None = None,
        wait: float | None = None,
        on_sigterm: bool = True,
    ) -> None:
        """Connects later. `dsn`: libpq URI or key=value."""
        self._held = held_items(ahead, visibility)
        self._news = threading.Condition()
        self._pump = QueuePump(dsn, consumer, self._held, partial(_tell, self._news))
        self._wait = wait
        self._on_sigterm = on_sigterm
        self._is_started = False
        self._finish: Callable[[], object] = self._pump.stop

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        held = self._held
        if not self._is_started:
            self._start()
        item = None if held.stopping else held.take()
        if item is None:
            item = self._next()
        elif held.is_low:
            self._pump.wake()
        if item is None:
            raise StopIteration
        return item

    def stop(self) -> None:
        """Let the loop end behind the item in hand, and give the others back; from any thread or signal handler."""
        self._pump.stop()

    def close(self) -> None:
        """Settle what was said of items, and give back what was taken ahead; items in hand come again.

        Raises DatabaseUnavailableError where the database is away and settled items may come again.
        """
        self._finish()
        if self._pump.error is not None:
            raise self._pump.error

    def _start(self) -> None:
        if self._held.stopping:
            return
        self._is_started = True
        # Nothing of this refers to the queue: one that is forgotten, or still there at the program's end, is closed.
        sigterm = SigtermHandler(self._pump.stop) if self._on_sigterm else None
        thread = threading.Thread(target=asyncio.run, args=(self._pump.run(),), name="queue", daemon=True)
        self._finish = weakref.finalize(self, _finish, self._pump, thread, sigterm)
        thread.start()

    def _next(self) -> Item | None:
        """Wait for one; None: the loop ends."""
        held, until = self._held, None if self._wait is None else time.monotonic() + self._wait
        with self._news:
            held.waiting = True
            self._pump.wake()
            try:
                while not (held.stopping or self._pump.has_ended):
                    if (item := held.take()) is not None:
                        return item
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0 and held.nothing_left:
                        return None
                    self._news.wait(left if left is None or left > 0 else None)
            finally:
                held.waiting = False
        if self._pump.error is not None:
            raise self._pump.error
        return None


def _tell(news: threading.Condition) -> None:
    with news:
        news.notify_all()


def _finish(pump: QueuePump, thread: threading.Thread, sigterm: SigtermHandler | None) -> None:
    pump.close()
    thread.join(_CLOSE_SECONDS)
    if sigterm is not None:
        sigterm.restore()
