"""A kind of table: how it is made, what is done to it, and the events that the log must then have."""

from __future__ import annotations

from dataclasses import dataclass
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
