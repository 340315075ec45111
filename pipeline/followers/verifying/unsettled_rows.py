"""Finds out which rows really differ, by several readings of both sides, one after another. Pure.

One reading proves nothing: a row is written at the source, and a moment later at the follower. But between two
readings, the follower receives everything that the source had at the first one. If three readings find the row
unchanged at both sides, the follower's row was neither older nor newer than the source's at the second reading. So a
difference at that point is real. A row that is neither equal nor unchanged so far is read again. Only the follower must
show row versions: if a value changed at the source and changed back between two readings, the follower has written the
row by the third.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

READINGS = 3
"""How many readings in sequence must find a row unchanged at both sides, and different."""
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideRow:
    """A row at one side. `key`: the texts that this side prints.

    `row_version` changes whenever the row is written, if this side shows it; otherwise it is constant. `hashes`: one
    for the text of each column, None for null. For a table without a key, one object stands for all rows together.
    """

    key: Key
    row_version: str
    hashes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RowPair:
    """A row at both sides, as one reading found it; None for a side that lacks the row."""

    source: SideRow | None
    follower: SideRow | None

    @property
    def is_equal(self) -> bool:
        """True if both sides have the same values, or neither has the row."""
        return (self.source and self.source.hashes) == (self.follower and self.follower.hashes)


class UnsettledRows:
    """The keys of rows that may differ. Each reading settles some of them."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._pending: dict[Key, tuple[RowPair | None, int]] = dict.fromkeys(keys, (None, 0))

    @property
    def pending(self) -> list[Key]:
        """The keys of rows that must be read again."""
        return list(self._pending)

    def compare(self, source: Mapping[Key, SideRow], follower: Mapping[Key, SideRow]) -> Iterator[RowPair]:
        """Yield the rows whose difference is final. Pass the rows of both sides for all pending keys.

        Before the next reading, the follower must have received everything that the source had at this one.
        """
        for key, (before, readings) in list(self._pending.items()):
            now = RowPair(source.get(key), follower.get(key))
            readings = readings + 1 if now == before else 1
            if now.is_equal or readings == READINGS:
                del self._pending[key]
            else:
                self._pending[key] = now, readings
            if not now.is_equal and readings == READINGS:
                yield now
