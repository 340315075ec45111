"""A plan: what writers do and which faults hit meanwhile, as data that can be printed, cut down and run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from tests.torture.plan.hostile import Settings

Values = dict[str, str | None]
Ways = Literal["default", "at_once", "staged", "mixed", "adopt", "all"]
ADOPTING: tuple[Ways, ...] = ("adopt", "all")
"""Ways in which a backlog becomes partitions."""
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
    "deed",
    "outside",
    "maintain",
]
ENDS: tuple[Kind, ...] = ("commit", "rollback", "prepare", "commit prepared", "rollback prepared")
_NAMED: Mapping[Kind, str] = {"begin": ";", "deed": ":", "outside": ":", "maintain": ":"}
STEADY: tuple[Ways, ...] = ("at_once", "mixed")
"""Seeds of which most small batches should be written directly: transactions come steadily then, small and plain."""
SHOWN = 150
"""Characters of a statement that are printed."""


@dataclass(frozen=True)
class Kinds:
    """How to compare columns: oids of their types by name; those over `json` and jsonb by their text."""

    types: dict[str, int]
    json: frozenset[str]


@dataclass(frozen=True)
class Row:
    """Which row a change is of: its table, its key `before`, and by column the number that renaming does not change.

    In one `era` of a table, what the log has of a row's columns still says what they hold.
    """

    table: int
    era: int
    before: str | None
    numbers: dict[str, int]


class Change(NamedTuple):
    """One change. `values`: a row's columns as text, of a delete only what the WAL has.

    `unchanged`: those of them that the WAL may lack. `changes`: old values of changed columns, None: not looked at.
    `also`: other names of the table that do no harm here, and what the key is under each.
    `was`: the row's key before, where it had another. `early`: its transaction had begun before the table joined.
    """

    table: str
    action: str
    key: str
    values: Values
    unchanged: tuple[str, ...] = ()
    changes: Values | None = None
    kinds: Kinds | None = None
    also: Mapping[str, frozenset[str]] = MappingProxyType({})
    row: Row | None = None
    was: str | None = None
    early: bool = False


@dataclass(frozen=True)
class Effect:
    """How each row that a statement returns, `columns` as text, becomes a change.

    `kept`: columns that the statement leaves alone; where such a value is TOASTed it is not in the WAL.
    `was`: the key that its row had before.
    """

    table: str
    action: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    kept: tuple[str, ...] = ()
    was: str | None = None


@dataclass(frozen=True)
class Step:
    """One statement of a transaction on one connection.

    `effect` is for what it returns, `changes` are what it makes in any case; neither: nothing that is published.
    A `deed` is named by an action and one of the odd tables, `outside` is one between two transactions.
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
        if self.kind in _NAMED:
            text = f"{self.kind}{_NAMED[self.kind]} {text}"
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
    catchup: bool = False
    """Whether a worker that is a little behind opens more slots."""
    settings: Settings = field(default_factory=dict)
    """What the roles have as whom the server connects."""
    old: bool = False
    """True if tables have existing rows, which the server reads."""
    ways: Ways = "default"
    """Which way small batches take into the log; `mixed`: each server another than the one before it. `adopt`: what is
    staged becomes partitions where it can; `all`: the ways of `mixed` beside it.
    """
    rushed: frozenset[int] = frozenset()
    """Transactions that come without any pause, so that they are a backlog."""

    @property
    def adopts(self) -> bool:
        """Whether a backlog is to become partitions."""
        return self.ways in ADOPTING

    @property
    def is_steady(self) -> bool:
        return self.ways in STEADY

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
        return replace(self, items=tuple(item for item in self.items if id(item) not in ids))

    def show(self) -> str:
        """Numbered lines: transaction, connection, statement; faults in between."""
        return "\n".join(f"{number:>5}  {item}" for number, item in enumerate(self.items, 1))
