"""Routes: rules that send changes to events tables, by source table and action. The first matching route decides."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, field_validator

from pipeline.config import patterns

Action = Literal["insert", "update", "delete", "truncate", "message", "read"]
ACTIONS: tuple[Action, ...] = get_args(Action)
LONGEST = 55
"""The most bytes of an events table's name: its sequence has eight bytes more, and Postgres cuts names at 63."""
_IDENTIFIER = r"[^\s.\"]{1,63}"
_KEYS = ("tables", "actions", "events_table")
_EXAMPLE = '[{"tables": ["public.audit_*"], "actions": ["insert"], "events_table": "public.audit_events"}]'


def events_table_name(value: str) -> str:
    """Return the name unchanged if an events table can have this name. Raises ValueError otherwise."""
    if not re.fullmatch(rf"{_IDENTIFIER}\.{_IDENTIFIER}", value):
        raise ValueError(f"expected `schema.table`, without quotes, spaces or further dots, not {value!r}")
    if len(value.partition(".")[2].encode()) > LONGEST:
        raise ValueError(f"expected a table's name of at most {LONGEST} bytes, not {value!r}")
    return value


class Route(BaseModel):
    """A rule: changes of these tables, by these actions, go to `events_table`. An empty list means all.

    A pattern is `schema.table`, where `*` matches anything. A truncate of a partition counts as a truncate of its
    partitioned table. A message has an empty schema, and its prefix as table: `.audit*`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tables: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    events_table: str

    @field_validator("tables", "actions", mode="before")
    @classmethod
    def _is_a_list(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise ValueError("expected a list of texts")
        return tuple(value)

    @field_validator("actions", mode="before")
    @classmethod
    def _actions_exist(cls, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else ():
            if isinstance(each, str) and each not in ACTIONS:
                raise ValueError(f"expected some of {', '.join(ACTIONS)}, not {each!r}")
        return value

    @field_validator("tables")
    @classmethod
    def _tables_are_qualified(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if not re.fullmatch(r"[^.]*\..+", pattern):
                raise ValueError(f"expected `schema.table`, where * matches anything, not {pattern!r}")
        return value

    @field_validator("events_table")
    @classmethod
    def _events_table_is_one(cls, value: str) -> str:
        return events_table_name(value)

    def matches(self, schema: str, table: str, action: str) -> bool:
        """True if a change of this table by this action belongs to the route."""
        if self.actions and action not in self.actions:
            return False
        return patterns.matches(self.tables, f"{schema}.{table}")

    def takes_all_of(self, other: Route) -> bool:
        """True if this route matches all changes that the other route matches."""
        if not set(other.actions or ACTIONS) <= set(self.actions or ACTIONS):
            return False
        # Here the other route's pattern is taken as a name: its * stands for any text, so only a * matches it.
        return not self.tables or (
            bool(other.tables) and all(patterns.matches(self.tables, each) for each in other.tables)
        )


def parse(value: Any) -> Any:
    """Parse routes: a list, as the file has it, or JSON, as the environment has it. Raises ValueError."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            raise ValueError(f"expected JSON such as {_EXAMPLE}") from None
    if not isinstance(value, list | tuple) or not all(isinstance(each, dict | Route) for each in value):
        raise ValueError(f"expected a list, [[routes]] in the configuration file or JSON such as {_EXAMPLE}")
    for number, route in enumerate(value, 1):
        if isinstance(route, dict) and not (route.get("tables") or route.get("actions")):
            raise ValueError(
                f"route {number} matches all changes: give it tables or actions, or set PIPELINE_EVENTS_TABLE instead"
            )
    return tuple(value)


def never_used(routes: Sequence[Route]) -> list[tuple[int, int]]:
    """Return the numbers of routes that never decide, each with the earlier route that matches all of its changes.

    The first route has number 1.
    """
    found = []
    for later, route in enumerate(routes):
        for earlier in range(later):
            if routes[earlier].takes_all_of(route):
                found.append((later + 1, earlier + 1))
                break
    return found


def dividing(routes: Sequence[Route]) -> list[int]:
    """Return the numbers, from 1, of routes that match only some of the actions that change a table's rows."""
    changes = {"insert", "update", "delete", "truncate", "read"}
    return [number for number, route in enumerate(routes, 1) if changes > changes.intersection(route.actions) > set()]


def explain(loc: Sequence[int | str], kind: str, message: str) -> str:
    """Describe a validation error within `routes` in one line: which route, which key, what is wrong."""
    where = "PIPELINE_ROUTES: "
    if len(loc) > 1:
        where += f"route {int(loc[1]) + 1}, " if isinstance(loc[1], int) else ""
    key = str(loc[2]) if len(loc) > 2 else ""
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, _KEYS, 1, 0.5)
        known = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_KEYS)}"
        return f"{where}unknown key {key!r}; {known}"
    if kind == "missing":
        return f"{where}{key} is missing: name the table that its changes go to, as `schema.table`"
    return f"{where}{key}{': ' if key else ''}{message[0].lower()}{message[1:]}"
