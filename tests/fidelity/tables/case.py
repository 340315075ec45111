"""A kind of table: how it is made, what is done to it, and the events that the log must then have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """What a reader sees of one event; `table` is its source table. Keys of `record` are in any order."""

    action: str
    table: str
    record_pk: str
    record: Values
    changes: Values | None = None
    unchanged: tuple[str, ...] = ()
    exact: Values | None = None


@dataclass(frozen=True)
class Stop:
    """Where a follower stops, as it says so; the schema is public there, the follower NAME, and each seq N.

    The follower continues after the statements of `repaired` there, or after new copies (`resync`); else it stays so.
    """

    reason: str
    remedy: str
    repaired: str = ""
    resync: bool = False

    @property
    def is_last(self) -> bool:
        """Whether nothing of the kind is followed after it."""
        return not self.repaired and not self.resync


@dataclass(frozen=True)
class AtFollower:
    """A line of docs/reference/follower-outcomes.md: what a follower has of a kind, as of the source's last commit.

    `says`: in words. `differs`: tables that are not there as they are at the source, with what `verify` says of them,
    `equal` where what is published of them is; None where it does not have the table. `prepared`: statements that were
    run there before. `stops`: on the way.
    """

    says: str = "equal"
    differs: dict[str, str | None] = field(default_factory=dict)
    prepared: str = ""
    stops: tuple[Stop, ...] = ()


EQUAL = AtFollower()


@dataclass(frozen=True)
class Kind:
    """One line of docs/reference/tables.md: `name` and `has`, what the log has of it.

    `before` runs before the server knows the source. Each of `steps` runs when all of the steps before has arrived and
    the publications are up to date; it is one transaction but where it says `commit`. All statements run in a schema of
    the kind's own, which the events below leave out, and which `{schema}` stands for.
    `since`, `upto`: major versions of Postgres that have it.
    """

    name: str
    has: str
    before: str
    steps: tuple[str, ...]
    events: tuple[Event, ...]
    since: int = 15
    upto: int = 99
    publication: str = "pipeline"
    """Which one the server is given: its own, or one that the user made beforehand."""
    after: str = ""
    """One more step, of which no events are asked: where the others leave no rows, a follower had nothing to have."""
    follower: AtFollower = EQUAL

    @property
    def schema(self) -> str:
        """Letters and underscores, so that it needs no quotes."""
        return "k_" + "".join(letter if letter.isalnum() else "_" for letter in self.name.lower())[:60]


def insert(table: str, record_pk: str, record: Values, **more: Any) -> Event:
    return Event("insert", table, record_pk, record, **more)


def update(table: str, record_pk: str, record: Values, changes: Values | None = None, **more: Any) -> Event:
    return Event("update", table, record_pk, record, changes, **more)


def delete(table: str, record_pk: str, record: Values, **more: Any) -> Event:
    return Event("delete", table, record_pk, record, **more)


def truncate(table: str) -> Event:
    return Event("truncate", table, "", {})
