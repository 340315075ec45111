"""What a program holds of a queue: items that were taken ahead, and what it has said of those that it got.

Two threads use it: the program takes and settles, the pump fills and collects. Each of its steps is one operation on a
deque, which threads may share.
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
"""Items that are taken before it is known how fast the program is."""
SETTLE_AT = 50
"""With so many the pump need not wait for more."""
_SHARE = 1 / 3
"""Of an item's visibility: so much passes before it is made longer, and so much is left when the program gets it."""
_NEW = 0.2
"""Weight of the newest item in the program's pace."""
T = TypeVar("T")


@dataclass(slots=True)
class Item:
    """A delivery: what `pipeline.receive` gives, for the program to `ack`, to `nack`, or to handle in a `with` block.

    The block acknowledges it when it ends, and refuses it when it raises. Both only say so: the queue settles what
    came together, at once where nothing else is to be done. Only what is said first counts. Numbers in `record` are
    exact, as in `Event`.
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
        """It is done. Raises the queue's error where it has ended with one."""
        self._say(done=True)

    def nack(self, delay: float | None = None) -> None:
        """Not now: again after so many seconds; by default after 1, doubled by each delivery, at most 300."""
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
    """`most`: the most items taken ahead. `visibility`: seconds that a delivery is ours; 0 until it is known."""

    def __init__(self, most: int, visibility: float | None) -> None:
        self.visibility = visibility or 0.0
        self.waiting = False
        """The program waits for an item."""
        self.stopping = False
        """It wants no more."""
        self.nothing_left = False
        """The database had nothing to receive, and everything is settled."""
        self.acks: deque[UUID] = deque()
        self.nacks: deque[tuple[UUID, float | None]] = deque()
        self._most = most
        self._items: deque[Item] = deque()
        self._late: deque[UUID] = deque()
        self._pace: float | None = None
        self._handed_at: float | None = None
        self._has_taken = True
        self._refill_at = 0

    def take(self) -> Item | None:
        """The next item, for the program; None when there is none."""
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
        """The pump is to be told: just now there is room for more than is held."""
        return len(self._items) == self._refill_at

    @property
    def is_urgent(self) -> bool:
        """Waiting for more to settle would keep the program waiting, or gain nothing."""
        return self.waiting or self.stopping or len(self.acks) + len(self.nacks) >= SETTLE_AT

    def room(self) -> int:
        """How many items to take now; 0 while enough are held, and while the program does not come for them.

        So many are held as it handles within a third of the visibility.
        """
        wanted = FIRST if self._pace is None else int(self.visibility * _SHARE / max(self._pace, 1e-6))
        wanted = min(self._most, max(wanted, int(self.waiting)))
        self._refill_at = wanted // 2
        if self.stopping or not self._has_taken or len(self._items) > self._refill_at:
            return 0
        return max(0, wanted - len(self._items))

    def add(self, items: list[Item]) -> None:
        """More items were taken."""
        self._items.extend(items)

    def renew_in(self) -> float | None:
        """Seconds until what is held has to be made longer or given back; None: nothing is held."""
        try:
            return self._items[0]._until - self.visibility * (1 - _SHARE) - time.monotonic()
        except IndexError:
            return None

    def to_extend(self) -> list[Item]:
        """What is held, where the program has come for an item since this was asked last; else nothing."""
        has_taken, self._has_taken = self._has_taken, False
        return list(self._items) if has_taken else []

    def extended(self, items: list[Item], until: float) -> None:
        """These were made longer."""
        for item in items:
            item._until = until

    def give_back(self) -> list[UUID]:
        """Everything that was taken ahead, which the program no longer gets."""
        return [item.ack_id for item in _emptied(self._items)]

    def late(self) -> list[UUID]:
        """What could not be made longer in time, and was left out."""
        return list(_emptied(self._late))


def collected(given: deque[T]) -> list[T]:
    """All that is in it, which is taken out."""
    return list(_emptied(given))


def _emptied(given: deque[T]) -> Iterator[T]:
    while True:
        try:
            yield given.popleft()
        except IndexError:
            return


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else (1 - _NEW) * before + _NEW * newest
