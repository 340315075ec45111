"""What the log has of each row, and therefore must not leave out: unchanged TOASTed values are filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tests.torture.plan.plan import Change, Row
from tests.torture.plan.statements import TOASTED


class Known:
    """Told of every change in the log's order. Of tables that no witness watches, everything is known.

    Of a table that changes its form, a worker that is behind cannot always tell what became of a value, and then it
    must not guess: such are counted, and are no fault.
    """

    def __init__(self, changed: Collection[int] = ()) -> None:
        """`changed`: tables that had more than one form."""
        self._changed = changed
        self._rows: dict[int, dict[str, dict[int, int]]] = {}
        """By table and key, by column the era of its last value in the log."""
        self.counts: Counter[str] = Counter()
        """Of long values that were left alone: those that are there, and those that are named."""

    def missed(self, unchanged: Sequence[str], change: Change) -> str | None:
        """Which of the columns that an event leaves out the log has, in words; None when it has none of them."""
        row = change.row
        for name in change.unchanged:
            if len(change.values[name] or "") >= TOASTED // 2:
                self.counts["left alone, named" if name in unchanged else "left alone, there"] += 1
        if row is None:
            return f"the log knows {', '.join(unchanged)}, and has not filled it in" if unchanged else None
        rows = self._rows.setdefault(row.table, {})
        if change.action == "truncate":
            rows.clear()
            return None
        known = rows.pop(row.before, {}) if row.before is not None else {}
        missed = [name for name in unchanged if known.get(row.numbers[name]) == row.era]
        if change.action in ("insert", "update") and change.key:
            rows[change.key] = self._learn(known, unchanged, change, row)
        if missed and row.table in self._changed:
            self.counts["left alone, named though known"] += len(missed)
            return None
        return f"the log knows {', '.join(missed)}, and has not filled it in" if missed else None

    def _learn(self, known: dict[int, int], unchanged: Sequence[str], change: Change, row: Row) -> dict[int, int]:
        learnt = {row.numbers[name]: row.era for name in change.values if name not in unchanged}
        return {**known, **learnt}
