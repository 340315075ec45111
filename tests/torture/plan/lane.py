"""What one connection does in a plan: random transactions, one after the other, on its own rows. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from tests.torture.plan.plan import Kind, Step
from tests.torture.plan.statements import Statements

KEY_RANGE = 1_000_000
LARGE_WIDTH = 64
RUSHED_ROWS = 60
"""The most of a transaction that comes in a rush."""


@dataclass
class _Rows:
    """Keys that a connection's next statement may find."""

    items: set[int] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)
    own: dict[str, set[int]] = field(default_factory=dict)
    gone: dict[str, set[int]] = field(default_factory=dict)
    """Its own tables: those that exist, and those that existed."""

    def take(self, other: _Rows) -> None:
        self.items |= other.items
        self.lines |= other.lines
        self.whole |= other.whole


@dataclass
class Prepared:
    transaction: int
    name: str
    rows: _Rows
    """Its own new ones."""


class LanePlanner:
    """One connection's statements, one after the other. Its rows are its own, so it never waits for another."""

    def __init__(self, lane: int, chance: random.Random, numbers: Callable[[], int]) -> None:
        self.number = lane
        self._chance = chance
        self._numbers = numbers
        self._next_key = lane * KEY_RANGE
        self._rows = _Rows()
        self._before = _Rows()
        self._savepoints: list[tuple[str, _Rows]] = []
        self._left = 0
        self._prepares = False
        self._say = Statements(chance, 0, lane)
        self._transaction = 0
        self.prepared: list[Prepared] = []

    @property
    def idle(self) -> bool:
        """Between two transactions."""
        return not self._transaction

    def begin(self) -> Step:
        self._transaction = self._numbers()
        self._left = self._chance.choice(self.STATEMENTS)
        self._prepares = self._chance.random() < self.PREPARED_SHARE
        self._say = Statements(self._chance, self._transaction, self.number)
        self._before = deepcopy(self._rows)
        if self._prepares:  # its locks outlive it here: it touches only its own new rows, which no other lane touches
            self._rows = _Rows(own=self._rows.own, gone=self._rows.gone)
        journal = self._chance.choice(("public", "public", "private"))
        return self._step("begin", f"insert into {journal}.journal values ({self._transaction})")

    def next(self) -> Step:
        """The next statement of the open transaction, or its end."""
        if self._left <= 0:
            return self._end()
        self._left -= 1
        return self._chance.choice(self._operations())(self)

    def _operations(self) -> Sequence[Callable[[LanePlanner], Step]]:
        return self.PREPARABLE if self._prepares else self.OPERATIONS

    def large(self) -> list[Step]:
        """A whole transaction of 9 to 13 thousand rows of 2 kB: it fills several segments."""
        begin = self.begin()
        self._left, self._prepares, self._rows = 0, False, deepcopy(self._before)
        first = self._new_keys(self._chance.randint(9_000, 13_000))
        rows = self._say.insert_lines(self.number, first[0], first[-1], LARGE_WIDTH)
        self._rows.lines.update(first[:20])
        return [begin, rows, self._commit()]

    def rush(self) -> list[Step]:
        """A whole transaction of some rows that come whole, up to 100 kB: many of them are a backlog."""
        begin = self.begin()
        self._left, self._prepares, self._rows = 0, False, deepcopy(self._before)
        keys = self._new_keys(self._chance.randint(RUSHED_ROWS // 3, RUSHED_ROWS))
        self._rows.lines.update(keys[:3])
        if self._chance.random() < 0.5:
            return [begin, self._say.copy_lines(self.number, keys), self._commit()]
        width = self._chance.choice((1, 16, LARGE_WIDTH))
        return [begin, self._say.insert_lines(self.number, keys[0], keys[-1], width), self._commit()]

    def resolve(self, prepared: Prepared, by: int) -> Step:
        """End a prepared transaction on connection `by`; then its rows may be touched again."""
        self.prepared.remove(prepared)
        commits = self._chance.random() < 0.7
        self._rows.take(prepared.rows if commits else _Rows())
        kind: Kind = "commit prepared" if commits else "rollback prepared"
        return Step(prepared.transaction, by, kind, f"{kind} '{prepared.name}'", name=prepared.name)

    def _step(self, kind: Kind, sql: str, name: str = "") -> Step:
        return Step(self._transaction, self.number, kind, sql, name=name)

    def _end(self) -> Step:
        if self._prepares:
            name = f"torture {self._transaction}"
            self.prepared.append(Prepared(self._transaction, name, self._rows))
            self._rows = deepcopy(self._before)
            step = self._step("prepare", f"prepare transaction '{name}'", name)
        elif self._chance.random() < self.ROLLED_BACK_SHARE:
            step = self._step("rollback", "rollback")
            self._rows = deepcopy(self._before)
        else:
            return self._commit()
        self._transaction, self._savepoints = 0, []
        return step

    def _commit(self) -> Step:
        step = self._step("commit", "commit")
        self._transaction, self._savepoints = 0, []
        return step

    def _savepoint(self) -> Step:
        name = f"s{len(self._savepoints) + 1}"
        self._savepoints.append((name, deepcopy(self._rows)))
        return self._step("savepoint", f"savepoint {name}", name)

    def _leave_savepoint(self) -> Step:
        """Release or roll back to any that is open; those inside of it go with it."""
        if not self._savepoints:
            return self._savepoint()
        at = self._chance.randrange(len(self._savepoints))
        name, rows = self._savepoints[at]
        if self._chance.random() < 0.4:
            del self._savepoints[at:]
            return self._step("release", f"release savepoint {name}", name)
        del self._savepoints[at + 1 :]
        self._rows = deepcopy(rows)
        return self._step("rollback to", f"rollback to savepoint {name}", name)

    def _new_keys(self, count: int) -> list[int]:
        first, self._next_key = self._next_key + 1, self._next_key + count
        return list(range(first, first + count))

    def _count(self, least: int, most: int) -> int:
        """How many rows a statement makes."""
        return self._chance.randint(least, most)

    def _some(self, known: set[int], most: int) -> list[int]:
        return self._chance.sample(sorted(known), min(len(known), self._chance.randint(1, most)))

    def _insert_items(self) -> Step:
        keys = self._new_keys(self._count(1, 8))
        self._rows.items.update(keys)
        return self._say.insert_items(keys)

    def _update_items(self) -> Step:
        return self._say.update_items(self._some(self._rows.items, 9))

    def _update_big(self) -> Step:
        return self._say.update_big(self._some(self._rows.items, 3))

    def _move_item(self) -> Step:
        if not self._rows.items:
            return self._insert_items()
        (old,), (new,) = self._some(self._rows.items, 1), self._new_keys(1)
        self._rows.items ^= {old, new}
        return self._say.move_item(old, new)

    def _delete_items(self) -> Step:
        keys = self._some(self._rows.items, 5)
        self._rows.items.difference_update(keys)
        return self._say.delete_items(keys)

    def _copy_items(self) -> Step:
        keys = self._new_keys(self._count(3, 30))
        self._rows.items.update(keys[:5])
        return self._say.copy_items(keys)

    def _copy_lines(self) -> Step:
        keys = self._new_keys(self._count(3, 60))
        self._rows.lines.update(keys[:9])
        return self._say.copy_lines(self.number, keys)

    def _insert_lines(self) -> Step:
        keys = self._new_keys(self._count(1, 20))
        self._rows.lines.update(keys)
        return self._say.insert_lines(self.number, keys[0], keys[-1])

    def _update_lines(self) -> Step:
        return self._say.update_lines(self.number, self._some(self._rows.lines, 9))

    def _move_line(self) -> Step:
        if not self._rows.lines:
            return self._insert_lines()
        (old,), (new,) = self._some(self._rows.lines, 1), self._new_keys(1)
        self._rows.lines ^= {old, new}
        return self._say.move_line(self.number, old, new)

    def _delete_lines(self) -> Step:
        keys = self._some(self._rows.lines, 6)
        self._rows.lines.difference_update(keys)
        return self._say.delete_lines(self.number, keys)

    def _insert_whole(self) -> Step:
        keys = self._new_keys(self._count(1, 4))
        self._rows.whole.update(keys)
        return self._say.insert_whole(keys)

    def _update_whole(self) -> Step:
        return self._say.update_whole(self._some(self._rows.whole, 4))

    def _delete_whole(self) -> Step:
        keys = self._some(self._rows.whole, 2)
        self._rows.whole.difference_update(keys)
        return self._say.delete_whole(keys)

    def _truncate(self) -> Step:
        choices = (
            ("public.scratch",),
            ("public.scratch", "public.child"),
            ("public.child", "private.scratch", "public.scratch"),
            ("private.scratch",),
        )
        return self._say.truncate(self._chance.choice(choices))

    def _truncate_cascade(self) -> Step:
        return self._say.truncate(("public.parent",), cascade=True)

    def _fill_scratch(self) -> Step:
        return self._say.fill_scratch()

    def _update_scratch(self) -> Step:
        return self._say.update_scratch()

    def _fill_parent(self) -> Step:
        return self._say.fill_parent()

    def _fill_child(self) -> Step:
        return self._say.fill_child(self._new_keys(1)[0])

    def _message(self) -> Step:
        return self._say.message()

    def _message_at_once(self) -> Step:
        return self._say.message_at_once()

    def _fill_private(self) -> Step:
        return self._say.fill_private(self._new_keys(1)[0])

    STATEMENTS: Sequence[int] = (0, 1, 2, 3, 4, 6, 9, 12)
    """How many a transaction has."""
    PREPARED_SHARE, ROLLED_BACK_SHARE = 0.12, 0.15
    PREPARABLE: Sequence[Callable[[LanePlanner], Step]] = (
        *[_insert_items, _insert_lines, _savepoint, _leave_savepoint] * 2,
        *[_update_items, _update_big, _move_item, _delete_items, _copy_items, _update_lines, _insert_whole],
        *[_update_whole, _message],
    )
    OPERATIONS: Sequence[Callable[[LanePlanner], Step]] = (
        *PREPARABLE,
        *[_update_items, _update_big, _copy_lines, _move_line, _delete_lines, _delete_whole, _fill_private],
        *[_fill_scratch, _update_scratch, _fill_parent, _fill_child, _truncate, _truncate_cascade, _message_at_once],
    )


class PlainLanePlanner(LanePlanner):
    """Mostly rows that come whole: what only the shuffler can write ends what a worker writes as a table."""

    ODD_ONE_IN = 250
    """One statement of this many may be any."""
    PLAIN: Sequence[Callable[[LanePlanner], Step]] = (
        *[LanePlanner._insert_items, LanePlanner._insert_lines, LanePlanner._insert_whole] * 3,
        *[LanePlanner._savepoint, LanePlanner._leave_savepoint, LanePlanner._delete_items, LanePlanner._update_lines]
        * 2,
        *[LanePlanner._copy_items, LanePlanner._copy_lines, LanePlanner._move_line, LanePlanner._delete_lines],
        *[LanePlanner._fill_private, LanePlanner._fill_scratch, LanePlanner._fill_parent, LanePlanner._fill_child],
        *[LanePlanner._message_at_once, LanePlanner._delete_whole, LanePlanner._update_whole],
    )

    def _operations(self) -> Sequence[Callable[[LanePlanner], Step]]:
        every = super()._operations()
        if self._chance.randrange(self.ODD_ONE_IN) == 0:
            return every
        return [operation for operation in self.PLAIN if operation in every]


class SteadyLanePlanner(PlainLanePlanner):
    """Small transactions, of which few have a row that only the shuffler can write."""

    ODD_ONE_IN = 100
    STATEMENTS = (0, 0, 1, 1, 1, 2, 3)
    PREPARED_SHARE, ROLLED_BACK_SHARE = 0.02, 0.05

    def _count(self, least: int, most: int) -> int:
        return self._chance.randint(1, 3)
