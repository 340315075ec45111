"""Which rows really differ, of those that may: found by looks at both sides, one after another. Pure.

One look proves nothing: a row is written at the source, and a moment later at the follower. But between two looks the
follower comes to have everything that the source had at the first one. So a row that is the same at the source at three
looks, and the same at the follower, must be equal by the second: what it had there was neither older nor newer. One
that is in neither of these states is looked at again. Versions at the follower are enough: if a value came back at the
source between two looks, the follower has written the row by the third.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

LOOKS = 3
"""So many looks in a row must find a row unchanged at both sides, and different."""
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideRow:
    """A row as one side has it. `key`: as that side prints it. `version`: another one whenever the row was written,
    if this side can tell.

    `hashes`: of its columns' texts, None for null. For a table without a key it stands for all rows together.
    """

    key: Key
    version: str
    hashes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RowPair:
    """Both sides of a row at one look, None where it is not there."""

    source: SideRow | None
    follower: SideRow | None

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return (self.source and self.source.hashes) == (self.follower and self.follower.hashes)


class UnsettledRows:
    """Keys of rows that may differ; each look settles some of them."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._pending: dict[Key, tuple[RowPair | None, int]] = dict.fromkeys(keys, (None, 0))

    @property
    def pending(self) -> list[Key]:
        """What is to be looked at again."""
        return list(self._pending)

    def compare(self, source: Mapping[Key, SideRow], follower: Mapping[Key, SideRow]) -> Iterator[RowPair]:
        """The rows that differ for good. Call it with what both sides have of all that is pending.

        Before the next look the follower must have come to have everything that the source had at this one.
        """
        for key, (before, looks) in list(self._pending.items()):
            now = RowPair(source.get(key), follower.get(key))
            looks = looks + 1 if now == before else 1
            if now.is_equal or looks == LOOKS:
                del self._pending[key]
            else:
                self._pending[key] = now, looks
            if not now.is_equal and looks == LOOKS:
                yield now
