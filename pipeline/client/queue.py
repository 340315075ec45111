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
from pipeline.client.pump import QueuePump, raise_error
from pipeline.client.sigterm import SigtermHandler
from pipeline.errors import ConsumerError

_CLOSE_SECONDS = 15.0


def held_items(ahead: int, visibility: float | None) -> HeldItems:
    """Check these options of a queue, and return its store of items, still empty. Raises ConsumerError."""
    if not 1 <= ahead <= 1000:
        raise ConsumerError(f"ahead is {ahead}: give a number from 1 to 1000")
    if visibility is not None and not visibility > 0:
        raise ConsumerError(f"visibility is {visibility}: give seconds above 0, or None for the consumer's setting")
    return HeldItems(ahead, visibility)


class Queue:
    """The items of the records consumer `consumer`, for a loop in one thread, which acknowledges or refuses each item.

    The queue prefetches items: as many as the program handles in a third of their visibility, at most `ahead`. It
    acknowledges several items together. An acknowledgement is on disk some milliseconds later; when `close` returns,
    all are. The loop ends after `stop`, and after `wait` seconds without an item; None: never.

    `visibility`: seconds that an item belongs to the program; None: the consumer's setting. When the program gets an
    item, two thirds of this time remain at least, or one third if the database did not answer for a while. The queue
    extends prefetched items as long as the program takes items. Otherwise it gives them back, as if they had never been
    delivered.

    The queue connects at the first item. Then its thread works with the database until `close`, the end of a
    `with queue:` block, or the end of the program. After a lost connection the queue reconnects, and logs a warning.

    SIGTERM: if the loop runs in the main thread and the program has no handler for SIGTERM, the queue sets one. After
    the signal the loop ends with the current item; when the queue is closed, the program ends by SIGTERM.
    `on_sigterm=False`: set no handler.

    The loop raises DatabaseUnavailableError if the first connection fails, UnknownConsumerError,
    WrongConsumerKindError, and StatementRefusedError if the database refuses a statement for any other reason.
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
        """Prepare the queue, which connects at the first item. `dsn`: libpq URI or key=value."""
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
        self._finish()
        if error is not self._pump.error:  # else the program gets it already
            raise_error(self._pump.error)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        held = self._held
        if not self._is_started:
            self._start()
        item = None if held.stopping else held.take_item()
        if item is None:
            item = self._next()
        elif held.is_low:
            self._pump.wake()
        if item is None:
            raise StopIteration
        return item

    def stop(self) -> None:
        """End the loop after the current item, and give the others back; any thread or signal handler may call this."""
        self._pump.stop()

    def close(self) -> None:
        """Finish all acknowledgements and refusals, and give back prefetched items.

        Items that the program got, and neither acknowledged nor refused, are delivered again.

        Raises DatabaseUnavailableError if the database does not answer, so that acknowledged items may be delivered
        again.
        """
        self._finish()
        raise_error(self._pump.error)

    def _start(self) -> None:
        if self._held.stopping:
            return
        self._is_started = True
        # The thread must not refer to the queue: Python then closes a queue that the program drops without closing it.
        sigterm = SigtermHandler(self._pump.stop) if self._on_sigterm else None
        thread = threading.Thread(target=asyncio.run, args=(self._pump.run(),), name="queue", daemon=True)
        self._finish = weakref.finalize(self, _finish, self._pump, thread, sigterm)
        thread.start()

    def _next(self) -> Item | None:
        """Wait for the next item; None: the program's loop must end."""
        held, until = self._held, None if self._wait is None else time.monotonic() + self._wait
        with self._news:
            held.waiting = True
            self._pump.wake()
            try:
                while not (held.stopping or self._pump.has_ended):
                    if (item := held.take_item()) is not None:
                        return item
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0 and held.nothing_left:
                        return None
                    self._news.wait(left if left is None or left > 0 else None)
            finally:
                held.waiting = False
        raise_error(self._pump.error)
        return None


def _tell(news: threading.Condition) -> None:
    with news:
        news.notify_all()


def _finish(pump: QueuePump, thread: threading.Thread, sigterm: SigtermHandler | None) -> None:
    pump.close()
    thread.join(_CLOSE_SECONDS)
    if sigterm is not None:
        sigterm.restore()
