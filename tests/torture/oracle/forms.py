"""What an event must be like of a change that a trigger saw, by the form that its table had at that place. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.torture.plan.plan import Change, Kinds, Row, Values

Order = tuple[str, ...]
FLOATS = (700, 701)
_SCALARS = (16, 20, 21, 23, 26, 700, 701, 1700)
"""bool, the integers, oid, floats and numeric: types whose values are JSON scalars."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_FIELD = re.compile(r'"((?:[^"\\]|""|\\.)*)"|([^,()"\\]*)', re.DOTALL)
MAY_BE_ELSEWHERE = 24
"""Characters from which on a value may be kept outside of its row, and an update that leaves it alone lacks it."""


def fields(text: str, count: int) -> list[str | None]:
    """The columns of a row as Postgres prints one: quotes and backslashes are doubled inside of quotes."""
    found: list[str | None] = []
    at = 1
    while len(found) < count:
        match = _FIELD.match(text, at)
        assert match is not None, text
        quoted, bare = match.groups()
        if quoted is not None:
            found.append(re.sub(r'""|\\(.)', lambda m: m[1] or '"', quoted, flags=re.DOTALL))
        else:
            found.append(bare or None)
        at = match.end() + 1
    return found


def change(action: str, form: dict[str, Any], old: str | None, new: str | None) -> Change:
    """What an event must be like of a change that a trigger saw."""
    if action == "truncate":
        return Change(form["name"], "truncate", "", {})
    columns = [column["name"] for column in form["columns"]]
    before = dict(zip(columns, fields(old, len(columns)), strict=True)) if old is not None else {}
    after = dict(zip(columns, fields(new, len(columns)), strict=True)) if new is not None else {}
    sent = [c for c in form["columns"] if not c["generated"] or (c["generated"] == "s" and form["told"]["generated"])]
    names = [column["name"] for column in sent]
    types = {column["name"]: column["type"] for column in sent}
    row = after or before
    key = _key(form["key"], row, types)
    if action == "delete":
        names = names if form["identity"] == "f" else form["key"]
    values = {name: row[name] for name in names}
    unchanged = tuple(name for name in names if action == "update" and _left_alone(form, before, after, name))
    kinds = Kinds(types, frozenset(column["name"] for column in sent if column["json"]))
    changes = _changes(form, names, before, after) if action == "update" else None
    return Change(form["table"], action, key, values, unchanged, changes, kinds)


def keys_by(
    orders: Iterable[Order], form: dict[str, Any], action: str, old: str | None, new: str | None, *, other: bool = False
) -> frozenset[str]:
    """The change's key with its columns in each of these orders. `other`: orders of other columns are keys, too."""
    if action == "truncate":
        return frozenset()
    columns = [column["name"] for column in form["columns"]]
    row = dict(zip(columns, fields(str(new or old), len(columns)), strict=True))
    types = {column["name"]: column["type"] for column in form["columns"]}
    fits = set(columns).issuperset if other else set(form["key"]).__eq__
    return frozenset(_key(list(order), row, types) for order in orders if fits(set(order)))


def _left_alone(form: dict[str, Any], before: Values, after: Values, name: str) -> bool:
    """Whether the WAL may lack the value: it is as it was, and so long that it may be outside of the row."""
    value = after[name]
    same = value is not None and value == before[name] and len(value) >= MAY_BE_ELSEWHERE
    return same and form["identity"] != "f"


def _changes(form: dict[str, Any], names: list[str], before: Values, after: Values) -> Values:
    known = names if form["identity"] == "f" else form["key"]
    return {name: before[name] for name in known if before[name] != after[name]}


def row_of(form: dict[str, Any], old: str | None, era: int) -> Row:
    """Which row of which table a change is of, so that it is known what the log has of it."""
    columns = [column["name"] for column in form["columns"]]
    before = dict(zip(columns, fields(old, len(columns)), strict=True)) if old is not None else {}
    types = {column["name"]: column["type"] for column in form["columns"]}
    numbers = {column["name"]: column["attnum"] for column in form["columns"]}
    return Row(form["oid"], era, _key(form["key"], before, types) if before else None, numbers)


def _key(names: list[str], row: Values, types: dict[str, int]) -> str:
    if len(names) == 1:
        return row[names[0]] or ""
    return f"[{','.join(_scalar(row[name], types[name]) for name in names)}]" if names else ""


def _scalar(value: str | None, type_oid: int) -> str:
    if value is None:
        return "null"
    if type_oid == 16:
        return {"t": "true", "f": "false"}[value]
    if type_oid in _SCALARS and _NUMBER.fullmatch(value) and not (type_oid in FLOATS and value == "-0"):
        return value
    return json.dumps(value, ensure_ascii=False)


class Eras:
    """Counts, for each table, times through which what the log has of a row still says what the row holds."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, Any]] = {}
        self._forms: dict[int, dict[str, Any]] = {}
        self.changed: set[int] = set()
        """Tables that had more than one form."""

    def enter(self, form: dict[str, Any]) -> int:
        """Call it for every form in turn. Another begins when the table was rewritten, is identified in another way,
        or is published in another way than before."""
        if self._forms.setdefault(form["oid"], form) != form:
            self.changed.add(form["oid"])
        numbers = {column["name"]: column["attnum"] for column in form["columns"]}
        key = [numbers[name] for name in form["key"]]
        state = (form["file"], form["identity"], key, form["told"], form["root"])
        era, before = self._of.get(form["oid"], (0, None))
        if state != before:
            era += 1
            self._of[form["oid"]] = era, state
        return era
