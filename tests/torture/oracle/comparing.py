"""The log as it is, and where it is not what the source wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import psycopg
from psycopg.rows import args_row

from tests.torture.oracle.knowing import Known
from tests.torture.oracle.model import Event
from tests.torture.plan.plan import Change, Kinds, Values

_BOOL, _FLOATS = 16, (700, 701)
_PLAIN = Kinds({}, frozenset())


@dataclass(frozen=True)
class Logged:
    """A row of the log without its seq. `record` and `changes` have each value as JSON text."""

    xid: int
    commit_lsn: int
    commit_idx: int
    table: str
    action: str
    key: str
    record: Mapping[str, str]
    unchanged: Sequence[str]
    exact: Mapping[str, str]
    changes: Mapping[str, str]
    seq: int = 0


def read_log(database: psycopg.Connection, table: str = "public.sequin_events") -> Iterator[Logged]:
    """Every event by seq."""
    query = f"""
        select xid, commit_lsn, commit_idx, source_table_schema || '.' || source_table_name, action, record_pk,
            coalesce((select json_object_agg(key, value::text) from jsonb_each(record)), '{{}}'),
            coalesce(unchanged_columns, '{{}}'), coalesce(exact, '{{}}'),
            coalesce((select json_object_agg(key, value::text) from jsonb_each(changes)), '{{}}'), seq
        from {table} order by seq"""
    with database.cursor(row_factory=args_row(Logged)) as cursor:
        yield from cursor.execute(query)


def first_difference(events: Iterable[Logged], expected: Iterable[Event], known: Known) -> str | None:
    """Where the log is not the model, in words; None when they are equal. `known` learns what the log has.

    Events with action `read` are no changes: tests/torture/oracle/reading.py looks at them.
    """
    before: Event | None = None
    for place, (event, wanted) in enumerate(zip_longest(_changes_of(events, known), expected), 1):
        difference = _difference(event, wanted)
        if event is not None and wanted is not None and difference is None:
            told = event.table, event.key
            known.counts["named as of another time"] += told != (wanted.change.table, wanted.change.key)
            difference = known.missed(event.unchanged, wanted.change)
        if difference:
            return (
                f"event {place} differs: {difference}\n  the log has       {show_logged(event)}\n"
                f"  the source wrote  {show(wanted)}\n  both have before  {show(before)}"
            )
        before = wanted
    return None


def _changes_of(events: Iterable[Logged], known: Known) -> Iterator[Logged]:
    for event in events:
        if event.action == "read":
            known.read(event.table, event.key)
        else:
            yield event


def _difference(event: Logged | None, wanted: Event | None) -> str | None:
    if event is None or wanted is None:
        return "one is missing"
    change = wanted.change
    pairs = {
        "xid": (event.xid, wanted.xid),
        "commit_lsn": (event.commit_lsn, wanted.commit_lsn),
        "commit_idx": (event.commit_idx, wanted.commit_idx),
        "action": (event.action, change.action),
        "table": (change.table if event.table in change.also else event.table, change.table),
        "key": (change.key if event.key in change.also.get(event.table, ()) else event.key, change.key),
    }
    for name, (found, right) in pairs.items():
        if found != right:
            return f"{name} is {found!r} and not {right!r}"
    return columns_differ(event, change) or _changes_differ(event, change)


def columns_differ(event: Logged, change: Change) -> str | None:
    """Whether an event has the values of a change, and leaves out none that it may not."""
    there = event.record.keys() | set(event.unchanged)
    if there != change.values.keys():
        return f"columns {sorted(there ^ change.values.keys())} are in one and not in the other"
    if twice := event.record.keys() & set(event.unchanged):
        return f"{sorted(twice)} are in record and in unchanged_columns"
    if lacking := set(event.unchanged) - set(change.unchanged):
        return f"the WAL has {sorted(lacking)}, which the log names as unchanged"
    kinds = change.kinds or _PLAIN
    for name, value in event.record.items():
        if not same(kinds, name, value, event.exact.get(name), change.values[name]):
            return f"column {name} is {value[:300]} and not {str(change.values[name])[:300]}"
    return None


def _changes_differ(event: Logged, change: Change) -> str | None:
    if change.changes is None:
        return None
    if event.changes.keys() != change.changes.keys():
        return f"changes are of {sorted(event.changes)} and not of {sorted(change.changes)}"
    kinds = change.kinds or _PLAIN
    for name, value in event.changes.items():
        if name not in kinds.json and not same(kinds, name, value, None, change.changes[name]):
            return f"of changes, {name} is {value[:300]} and not {str(change.changes[name])[:300]}"
    return None


def same(kinds: Kinds, name: str, value: str, exact: str | None, wanted: str | None) -> bool:
    """Whether a value of a record, as JSON text, with the text that `exact` has, is what the source printed."""
    if name in kinds.json and wanted is not None:
        return (exact if exact is not None else value) == wanted
    text = _text(value)
    if kinds.types.get(name) == _BOOL and text is not None:
        return text[:1] == wanted
    if kinds.types.get(name) in _FLOATS and text is not None and wanted is not None and text != wanted:
        return not text.startswith('"') and text[0].isdigit() | (text[0] == "-") and float(text) == float(wanted)
    return text == wanted


def _text(value: str) -> str | None:
    """As `->>` has it."""
    if value == "null":
        return None
    return str(json.loads(value)) if value.startswith('"') else value


def show_logged(event: Logged | None) -> str:
    """One line, long values cut."""
    if event is None:
        return "nothing"
    values = {name: _text(value) for name, value in event.record.items()}
    change = Change(event.table, event.action, event.key, values, tuple(event.unchanged))
    return show(Event(event.xid, event.commit_lsn, event.commit_idx, change))


def show(event: Event | None) -> str:
    """One line, long values cut."""
    if event is None:
        return "nothing"
    change = event.change
    values: Values = {
        name: value if len(value or "") < 60 else f"{(value or '')[:50]}…" for name, value in change.values.items()
    }
    lsn = f"{event.commit_lsn >> 32:X}/{event.commit_lsn & 0xFFFFFFFF:X}"
    unchanged = f" unchanged {', '.join(change.unchanged)}" if change.unchanged else ""
    return (
        f"xid {event.xid} at {lsn} #{event.commit_idx} {change.action} {change.table} {change.key} {values}{unchanged}"
    )
