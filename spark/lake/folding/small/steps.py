"""Goes through changes in order of seq: which is the last of each key, and where the values are that updates left out.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GONE = -1
"""In place of a change: no row has the key."""
RowHolder = int | str | None
"""What a row was at some moment: the change that wrote it, or GONE; its key, if it is from before the changes."""


@dataclass
class KeySteps:
    """`last`: by key the last change, or GONE. `omitted`: by change the columns that it left out; `before`: by change,
    of those that left something out, what its row was before it.
    """

    last: dict[str | None, int] = field(default_factory=dict)
    omitted: dict[int, frozenset[int]] = field(default_factory=dict)
    before: dict[int, RowHolder] = field(default_factory=dict)

    def holder(self, change: int, column: int) -> RowHolder:
        """Where the value of a column is which a change has or left out."""
        at: RowHolder = change
        while isinstance(at, int) and column in self.omitted.get(at, ()):
            at = self.before[at]
        return at


def trace_steps(
    changes: Iterable[tuple[str | None, str, str | None]], omitted: Mapping[int, frozenset[int]]
) -> KeySteps:
    """`changes`: record_pk, action and previous_record_pk of each, in order; they are numbered from 0."""
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
