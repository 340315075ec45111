"""The items that a program holds: items taken ahead, and the ids of items that the program has settled.

Two threads use these: the program takes and settles items, the pump adds items and collects settled ids. Each step is
one operation on a deque, which threads may share.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

FIRST = 10
"""Items that are taken ahead before the pace of the program is known."""
SETTLE_AT = 50
"""The number of settled items at which the pump stops waiting for more."""
_SHARE = 1 / 3
"""The share of an item's visibility after which it is extended, and that remains when the program gets the item."""
_NEW = 0.2
"""Weight of the newest item in the program's pace."""
T = TypeVar("T")


@dataclass(slots=True)
class Item:
    """A delivery of `pipeline.receive`, which the program must `ack`, `nack`, or handle in a `with` block.

    The block acknowledges the item when it ends, and refuses the item when it raises. Both return at once: the queue
    settles several items together, or an item immediately if nothing else is to do. Only the first call counts.
    Numbers in `record` are exact, as in `Event`.
    """

    ack_id: UUID
    seq: int
    commit_lsn: int | None
    commit_idx: int | None
    source_table_schema: str
    source_table_name: str
    record_pk: str
    action: str
    record: dict[str, Any]
    changes: dict[str, Any] | None
    exact: dict[str, str] | None
    unchanged_columns: list[str] | None
    transaction_annotations: Any
    metadata: dict[str, Any] | None
    committed_at: datetime
    deliveries: int
    unparsed: dict[str, str]
    _until: float = field(repr=False, compare=False)
    _settle: Callable[[UUID, bool, float | None], None] | None = field(repr=False, compare=False)

    def ack(self) -> None:
        """Acknowledge the item. Raises the queue's error if the queue has ended with one."""
        self._say(done=True)

    def nack(self, delay: float | None = None) -> None:
        """Refuse the item, which is delivered again after `delay` seconds.

        The default is 1 second, doubled by each delivery, at most 300.
        """
        self._say(done=False, delay=delay)

    def __enter__(self) -> Item:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._say(done=kind is None)

    def _say(self, *, done: bool, delay: float | None = None) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self.ack_id, done, delay)


class HeldItems:
    """The items taken ahead and the settled ids of one queue.

    `most`: the most items taken ahead. `visibility`: seconds that a delivery belongs to this program; 0: not known yet.
    """

    def __init__(self, most: int, visibility: float | None) -> None:
        self.visibility = visibility or 0.0
        self.waiting = False
        """True while the program waits for an item."""
        self.stopping = False
        """True once the program wants no more items."""
        self.nothing_left = False
        """True if the database has nothing to receive, and everything is settled."""
        self.acks: deque[UUID] = deque()
        self.nacks: deque[tuple[UUID, float | None]] = deque()
        self._most = most
        self._items: deque[Item] = deque()
        self._late: deque[UUID] = deque()
        self._pace: float | None = None
        self._handed_at: float | None = None
        self._has_taken = True
        self._refill_at = 0

    def take_item(self) -> Item | None:
        """Return the next item for the program; None if none is held."""
        now = time.monotonic()
        if self._handed_at is not None:
            self._pace = _mean(self._pace, now - self._handed_at)
            self._handed_at = None
        self._has_taken = True
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                return None
            if item._until - now >= self.visibility * _SHARE:
                self._handed_at = time.monotonic()
                return item
            self._late.append(item.ack_id)

    @property
    def is_low(self) -> bool:
        """True if the pump must be woken, because the number of held items has just fallen to the refill level."""
        return len(self._items) == self._refill_at

    @property
    def is_urgent(self) -> bool:
        """True if the pump must settle now: waiting for more would delay the program, or gain nothing."""
        return self.waiting or self.stopping or len(self.acks) + len(self.nacks) >= SETTLE_AT

    def room(self) -> int:
        """Return how many items to take now; 0 while enough are held, and while the program takes none.

        Enough means: as many as the program handles within a third of the visibility.
        """
        wanted = FIRST if self._pace is None else int(self.visibility * _SHARE / max(self._pace, 1e-6))
        wanted = min(self._most, max(wanted, int(self.waiting)))
        self._refill_at = wanted // 2
        if self.stopping or not self._has_taken or len(self._items) > self._refill_at:
            return 0
        return max(0, wanted - len(self._items))

    def add(self, items: list[Item]) -> None:
        """Add items that were received."""
        self._items.extend(items)

    def renew_in(self) -> float | None:
        """Return the seconds until the held items must be extended or given back; None: no item is held."""
        try:
            return self._items[0]._until - self.visibility * (1 - _SHARE) - time.monotonic()
        except IndexError:
            return None

    def to_extend(self) -> list[Item]:
        """Return the held items if the program has taken an item since the last call; else nothing."""
        has_taken, self._has_taken = self._has_taken, False
        return list(self._items) if has_taken else []

    def extended(self, items: list[Item], until: float) -> None:
        """Record the new end of visibility of these items."""
        for item in items:
            item._until = until

    def give_back(self) -> list[UUID]:
        """Remove all items that were taken ahead, and return their ids."""
        return [item.ack_id for item in _emptied(self._items)]

    def late(self) -> list[UUID]:
        """Remove the ids of items that were not extended in time, and return them."""
        return list(_emptied(self._late))


def collected(given: deque[T]) -> list[T]:
    """Empty the deque, and return its contents."""
    return list(_emptied(given))


def _emptied(given: deque[T]) -> Iterator[T]:
    while True:
        try:
            yield given.popleft()
        except IndexError:
            return


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else (1 - _NEW) * before + _NEW * newest
