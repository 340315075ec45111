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
    """Check the options, and return empty held items. Raises ConsumerError for an option out of range."""
    if not 1 <= ahead <= 1000:
        raise ConsumerError(f"ahead is {ahead}: give 1 to 1000")
    if visibility is not None and not visibility > 0:
        raise ConsumerError(f"visibility is {visibility}: give seconds, more than 0, or None for the consumer's")
    return HeldItems(ahead, visibility)


class Queue:
    """The items of the records consumer `consumer`, for one thread, which settles each item: see `Item`.

    The queue takes items ahead: as many as the program handles in a third of their visibility, at most `ahead`. It
    acknowledges items together: an acknowledgement is on disk some milliseconds later, and all are when `close`
    returns. An item belongs to the program for at least two thirds of the visibility, or a third if the database was
    away. While the program takes items, the queue extends those that were taken ahead. Otherwise it gives them back, as
    if they had never been delivered. `visibility`: seconds; None: the consumer's. The loop ends by `stop`, and after
    `wait` seconds without an item; None: never.

    The queue connects at the first item. Then its thread works with the database until `close`, the end of a
    `with queue:` block, or the end of the program. After a lost connection the queue reconnects, and logs a warning.

    SIGTERM: if the queue is used in the main thread of a program without a handler, it sets one. The loop then ends
    after the current item, and when the queue is closed the program ends by SIGTERM. `on_sigterm=False` sets none.

    The loop raises DatabaseUnavailableError if the first connection fails, UnknownConsumerError,
    WrongConsumerKindError, and StatementRefusedError for anything else that the database refuses.
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
        """Settle what the program has settled, and give back items that were taken ahead.

        Items that the program has not settled are delivered again.

        Raises DatabaseUnavailableError where the database is away and settled items may come again.
        """
        self._finish()
        raise_error(self._pump.error)

    def _start(self) -> None:
        if self._held.stopping:
            return
        self._is_started = True
        # Nothing here refers to the queue, so that it is closed if the program drops it, or ends without closing it.
        sigterm = SigtermHandler(self._pump.stop) if self._on_sigterm else None
        thread = threading.Thread(target=asyncio.run, args=(self._pump.run(),), name="queue", daemon=True)
        self._finish = weakref.finalize(self, _finish, self._pump, thread, sigterm)
        thread.start()

    def _next(self) -> Item | None:
        """Wait for an item; None: the loop ends."""
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
