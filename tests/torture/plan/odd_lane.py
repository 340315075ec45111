"""What a connection to the odd tables does in a plan: which deeds, in which transactions. Pure.

What a deed is in SQL depends on the tables as they are when it comes: chance is a number in the plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.torture.plan.deeds_rows import ROW_DEEDS
from tests.torture.plan.deeds_shapes import OUTSIDE, SHAPE_DEEDS
from tests.torture.plan.plan import Kind, Step

SHAPES = 0.22
"""How many deeds are DDL."""


class OddLanePlanner:
    """One connection's deeds. They are short transactions: DDL keeps others waiting."""

    def __init__(self, lane: int, chance: random.Random, numbers: Callable[[], int]) -> None:
        self.number = lane
        self._chance = chance
        self._numbers = numbers
        self._transaction = 0
        self._left = 0
        self._savepoints = 0
        self._prepares = False
        self.prepared: list[tuple[int, str]] = []

    @property
    def idle(self) -> bool:
        """Between two transactions."""
        return not self._transaction

    def begin(self) -> Step:
        self._transaction = self._numbers()
        self._left, self._savepoints = self._chance.choice((1, 2, 3, 4, 6, 9)), 0
        self._prepares = self._chance.random() < 0.06
        return self._step("begin", f"insert into public.journal values ({self._transaction})")

    def outside(self) -> Step:
        """Something between two transactions."""
        return Step(self._numbers(), self.number, "outside", self._deed(self._chance.choice(sorted(OUTSIDE))))

    def next(self) -> Step:
        """The next deed of the open transaction, or its end."""
        if self._left <= 0:
            return self._end()
        self._left -= 1
        if (chance := self._chance.random()) < 0.12:
            self._savepoints += 1
            return self._step("savepoint", f"savepoint s{self._savepoints}", f"s{self._savepoints}")
        if chance < 0.24 and self._savepoints:
            kind: Kind = self._chance.choice(("rollback to", "rollback to", "release"))
            name = f"s{self._chance.randint(1, self._savepoints)}"
            return self._step(kind, f"{kind.replace('release', 'release savepoint')} {name}", name)
        shapes = self._chance.random() < SHAPES
        return self._step("deed", self._deed(self._chance.choice(SHAPE_DEEDS if shapes else ROW_DEEDS)))

    def resolve(self, prepared: tuple[int, str], by: int) -> Step:
        """End a prepared transaction on connection `by`."""
        self.prepared.remove(prepared)
        kind: Kind = self._chance.choice(("commit prepared", "commit prepared", "rollback prepared"))
        transaction, name = prepared
        return Step(transaction, by, kind, f"{kind} '{name}'", name=name)

    def _deed(self, name: str) -> str:
        return f"{name} #{self._chance.randrange(1_000_000_000)}"

    def _step(self, kind: Kind, sql: str, name: str = "") -> Step:
        return Step(self._transaction, self.number, kind, sql, name=name)

    def _end(self) -> Step:
        if self._prepares:
            name = f"torture {self._transaction}"
            self.prepared.append((self._transaction, name))
            step = self._step("prepare", f"prepare transaction '{name}'", name)
        elif self._chance.random() < 0.12:
            step = self._step("rollback", "rollback")
        else:
            step = self._step("commit", "commit")
        self._transaction = 0
        return step
