"""Traces changes in order of seq: finds the last change of each key, and the places of values that updates left out.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GONE = -1
"""The value instead of a change's number if no row has the key."""
RowHolder = int | str | None
"""The holder of a row's values: the number of the change that wrote the row, its key if no change did, or GONE."""


@dataclass
class KeySteps:
    """The steps of all keys. `last`: key → its last change, or GONE.

    `omitted`: change → the columns that it left out. `before`: such a change → the holder of the row before it.
    """

    last: dict[str | None, int] = field(default_factory=dict)
    omitted: dict[int, frozenset[int]] = field(default_factory=dict)
    before: dict[int, RowHolder] = field(default_factory=dict)

    def holder(self, change: int, column: int) -> RowHolder:
        """Return the holder of a column's value as of a change, which may have left the value out."""
        at: RowHolder = change
        while isinstance(at, int) and column in self.omitted.get(at, ()):
            at = self.before[at]
        return at


def trace_steps(
    changes: Iterable[tuple[str | None, str, str | None]], omitted: Mapping[int, frozenset[int]]
) -> KeySteps:
    """Trace changes, given as record_pk, action and previous_record_pk in order; their numbers begin with 0."""
    found = KeySteps(omitted=dict(omitted))
    last = found.last
    for number, (key, action, previous) in enumerate(changes):
        moved = previous is not None and previous != key and action == "update"
        if number in omitted:
            came_from = previous if moved else key
            found.before[number] = last.get(came_from, came_from)
        if moved:
            last[previous] = GONE
        last[key] = GONE if action == "delete" else number
    return found
