"""Stores the items of a queue between the program and the database: prefetched items, and ids to settle.

To settle an item is to acknowledge it or to refuse it. Two threads use this store: the program takes items and adds
ids; the pump adds items and collects ids. Each step is one operation on a deque, which threads may share.
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
"""The number of items that are prefetched at first, when the speed of the program is still unknown."""
SETTLE_AT = 50
"""The number of settled items at which the pump tells the database at once, instead of waiting for more."""
_SHARE = 1 / 3
"""The share of the visibility after which a prefetched item is extended. The same share is the least that remains when
the program gets an item."""
_NEWEST_WEIGHT = 0.2
"""The weight of the newest item in the average of the seconds that the program needs for an item."""
T = TypeVar("T")


@dataclass(slots=True)
class Item:
    """A delivered item, for which the program must call `ack` or `nack`, or use a `with` block.

    The block acknowledges the item if it ends normally, and refuses the item if it raises an error. `ack` and `nack`
    return at once, and only the first call counts: the queue reports several items to the database together, or an item
    immediately if no other item waits. Numbers in `record` are exact, as in `Event`.
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
        """Refuse the item, which will be delivered again after `delay` seconds.

        Without `delay`: after 1 second, then twice as long after each delivery, at most 300 seconds.
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
    """The prefetched items of one queue, and the ids that the program has acknowledged or refused.

    `most`: the most prefetched items. `visibility`: seconds that a delivery belongs to this program; 0: not known yet.
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
        """Return the next item for the program; None if there is no prefetched item."""
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
        """True if the number of prefetched items has just fallen to the level at which the pump must receive more."""
        return len(self._items) == self._refill_at

    @property
    def is_urgent(self) -> bool:
        """True if the pump must report settled items now: to wait for more would delay the program, or gain nothing."""
        return self.waiting or self.stopping or len(self.acks) + len(self.nacks) >= SETTLE_AT

    def room(self) -> int:
        """Return how many items the pump should receive now; 0 if enough are prefetched, or if the program takes none.

        Enough are as many as the program handles within a third of the visibility.
        """
        wanted = FIRST if self._pace is None else int(self.visibility * _SHARE / max(self._pace, 1e-6))
        wanted = min(self._most, max(wanted, int(self.waiting)))
        self._refill_at = wanted // 2
        if self.stopping or not self._has_taken or len(self._items) > self._refill_at:
            return 0
        return max(0, wanted - len(self._items))

    def add(self, items: list[Item]) -> None:
        """Add items that the pump has received."""
        self._items.extend(items)

    def renew_in(self) -> float | None:
        """Return the seconds until the prefetched items must be extended or given back; None: there are none."""
        try:
            return self._items[0]._until - self.visibility * (1 - _SHARE) - time.monotonic()
        except IndexError:
            return None

    def to_extend(self) -> list[Item]:
        """Return the prefetched items if the program has taken an item since the last call; else an empty list."""
        has_taken, self._has_taken = self._has_taken, False
        return list(self._items) if has_taken else []

    def extended(self, items: list[Item], until: float) -> None:
        """Record the new time at which the visibility of these items ends."""
        for item in items:
            item._until = until

    def give_back(self) -> list[UUID]:
        """Remove all prefetched items, and return their ids."""
        return [item.ack_id for item in _emptied(self._items)]

    def late(self) -> list[UUID]:
        """Return the ids of items that were too old for the program, since they were not extended, and forget them."""
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
    return newest if before is None else (1 - _NEWEST_WEIGHT) * before + _NEWEST_WEIGHT * newest
