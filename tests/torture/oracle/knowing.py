"""What the log has of each row, and therefore must not leave out: unchanged TOASTed values are filled in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from tests.torture.plan.plan import Change, Row
from tests.torture.plan.statements import TOASTED


class Known:
    """Told of every change in the log's order. Of tables that no witness watches, everything is known.

    Of a table that changes its form, a worker that is behind cannot always tell what became of a value, and then it
    must not guess: such are counted, and are no fault.
    """

    def __init__(self, changed: Collection[int] = (), *, old: bool = False, keyed_later: Collection[str] = ()) -> None:
        """`changed`: tables that had more than one form; `old`: tables have rows that the log does not begin with.

        `keyed_later`: of these, tables that got their key when they had rows. Where the slot may still send changes
        from before that, and the table was rewritten, a change does not say which form of the key it had. What is
        read says so, since the table is locked: from then on, everything is known.
        """
        self._changed = changed
        self._old = old
        self._doubtful = set(keyed_later)
        self._unknown: dict[str, dict[str, Collection[str]]] = defaultdict(dict)
        """By table and key, which columns the last event of the row left out; of tables that no witness watches."""
        self._rows: dict[int, dict[str, dict[int, int]]] = {}
        """By table and key, by column the era of its last value in the log."""
        self.counts: Counter[str] = Counter()
        """Of long values that were left alone: those that are there, and those that are named."""

    def read(self, table: str, key: str) -> None:
        """The log has all of the row."""
        if key and table in self._doubtful:
            self._doubtful.discard(table)
            self._unknown.pop(table, None)
        self._unknown[table][key] = ()

    def _missed_of_old(self, unchanged: Sequence[str], change: Change) -> str | None:
        """What the event before of the row has must be there, but for a transaction in which its table joined."""
        rows = self._unknown[change.table]
        if change.action == "truncate":
            rows.clear()
            return None
        before = rows.pop(change.was or change.key, None)
        if change.action != "delete":
            rows[change.key] = tuple(change.values) if change.early else unchanged
        missed = [] if before is None else [name for name in unchanged if name not in before]
        if change.table in self._doubtful:
            self.counts["left alone, named though known"] += len(missed)
            return None
        return f"the log knows {', '.join(missed)}, and has not filled it in" if missed else None

    def missed(self, unchanged: Sequence[str], change: Change) -> str | None:
        """Which of the columns that an event leaves out the log has, in words; None when it has none of them."""
        row = change.row
        for name in change.unchanged:
            if len(change.values[name] or "") >= TOASTED // 2:
                self.counts["left alone, named" if name in unchanged else "left alone, there"] += 1
        if row is None:
            if self._old:
                return self._missed_of_old(unchanged, change)
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
