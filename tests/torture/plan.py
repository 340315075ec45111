"""A plan: what writers do and which faults hit meanwhile, as data that can be printed, cut down and run again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Values = dict[str, str | None]
Kind = Literal[
    "begin",
    "change",
    "savepoint",
    "release",
    "rollback to",
    "commit",
    "rollback",
    "prepare",
    "commit prepared",
    "rollback prepared",
]
SHOWN = 150
"""Characters of a statement that are printed."""


class Change(NamedTuple):
    """One change. `values`: a row's columns as text, of a delete only what the WAL has; `unchanged`: left out of it."""

    table: str
    action: str
    key: str
    values: Values
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """How each row that a statement returns, `columns` as text, becomes a change.

    `kept`: columns that the statement leaves alone; where such a value is TOASTed it is not in the WAL.
    """

    table: str
    action: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One statement of a transaction on one connection.

    `effect` is for what it returns, `changes` are what it makes in any case; neither: nothing that is published.
    `data` is what follows a COPY. `name` is a savepoint's or a prepared transaction's.
    """

    transaction: int
    connection: int
    kind: Kind
    sql: str
    effect: Effect | None = None
    changes: tuple[Change, ...] = ()
    data: str = ""
    name: str = ""

    def __str__(self) -> str:
        text = " ".join(self.sql.split())
        if self.kind == "begin":
            text = f"begin; {text}"
        if len(text) > SHOWN:
            text = text[: SHOWN - 1] + "…"
        rows = f"  ({self.data.count(chr(10))} rows)" if self.data else ""
        return f"t{self.transaction:<4} c{self.connection}  {text}{rows}"


@dataclass(frozen=True)
class Fault:
    """A fault that begins here and is over after about `seconds`, where it is one that lasts."""

    kind: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"---------- {self.kind}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


Item = Step | Fault


@dataclass(frozen=True)
class Plan:
    """Steps and faults in the order in which they begin. Any part of a plan's items, in order, is a plan too."""

    seed: int
    items: tuple[Item, ...]

    @property
    def faults(self) -> list[Fault]:
        return [item for item in self.items if isinstance(item, Fault)]

    @property
    def steps(self) -> list[Step]:
        return [item for item in self.items if isinstance(item, Step)]

    @property
    def transactions(self) -> list[int]:
        """Their numbers, by where they begin."""
        return list(dict.fromkeys(step.transaction for step in self.steps))

    def without(self, gone: Iterable[Item]) -> Plan:
        """The same without these very objects: two equal faults are two."""
        ids = {id(item) for item in gone}
        return Plan(self.seed, tuple(item for item in self.items if id(item) not in ids))

    def show(self) -> str:
        """Numbered lines: transaction, connection, statement; faults in between."""
        return "\n".join(f"{number:>5}  {item}" for number, item in enumerate(self.items, 1))
