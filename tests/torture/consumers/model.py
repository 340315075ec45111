"""What consumers must have been given: a plain reading of the log and of what clients did, by no SQL of the product."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Key = tuple[str, str, int]
"""Table, record_pk, and the seq where each event is its own item, else 0."""
FOREVER = float("inf")


@dataclass(frozen=True)
class Wish:
    """A consumer: which tables it wants (empty: all), and its limits."""

    name: str
    tables: frozenset[str] = frozenset()
    group_by: str = ""
    max_unacknowledged: int | None = None
    max_deliveries: int | None = None
    collapse: bool = True


@dataclass(frozen=True)
class Event:
    """A row of the log."""

    seq: int
    table: str
    pk: str
    action: str
    record: dict[str, Any]
    changes: dict[str, Any] | None


@dataclass(frozen=True)
class Change:
    """What happened to an item."""

    seq: int
    action: str
    record: dict[str, Any]


@dataclass(eq=False)
class Delivery:
    """What a client was given, and for how long it surely had it: from `after` to `until`.

    `before` and `after` are the times around the call. `acked`: whether it was settled, None if unknown;
    `acked_before` and `acked_after` are the times around that. `void`: its transaction was
    not committed, or perhaps not.
    """

    key: Key
    ack_id: Any
    seq: int
    action: str
    record: dict[str, Any]
    before: float
    after: float
    until: float
    batch: int
    acked: bool | None = False
    acked_before: float = FOREVER
    acked_after: float = FOREVER
    void: bool = False

    def released(self, at: float) -> None:
        """From then on another client may have it."""
        self.until = min(self.until, at)


@dataclass
class Truth:
    """The log by item: all changes of each, all truncates of each table; and event by event, in the lines of rows."""

    keys: Mapping[str, Sequence[str]]
    items: dict[Key, list[Change]] = field(default_factory=lambda: defaultdict(list))
    truncates: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    events: dict[Key, list[Change]] = field(default_factory=dict)
    lines: dict[tuple[str, str], list[Key]] = field(default_factory=lambda: defaultdict(list))
    """The events of each row, also the one by which a row has left that key."""

    def read(self, events: Iterable[Event]) -> Truth:
        for event in events:
            columns = self.keys.get(event.table, ())
            whole = event.action in ("truncate", "message") or not columns
            if event.action == "truncate":
                self.truncates[event.table].append(event.seq)
            itself = (event.table, event.pk, event.seq)
            self.events[itself] = [Change(event.seq, event.action, event.record)]
            if not whole:
                self.lines[event.table, event.pk].append(itself)
            old = {**event.record, **(event.changes or {})}
            moved = event.action == "update" and set(columns) & set(event.changes or {})
            if moved:
                left = {column: old[column] for column in columns}
                self._add(event, self.pk(event.table, left), 0, Change(event.seq, "delete", left))
                self.lines[event.table, self.pk(event.table, left)].append(itself)
            self._add(event, event.pk, event.seq if whole else 0, Change(event.seq, event.action, event.record))
        return self

    def pk(self, table: str, record: Mapping[str, Any]) -> str:
        """The text of a key as clients see it."""
        values = [record[column] for column in self.keys[table]]
        return str(values[0]) if len(values) == 1 else json.dumps(values, separators=(",", ":"))

    def _add(self, event: Event, pk: str, unkeyed: int, change: Change) -> None:
        self.items[event.table, pk, unkeyed].append(change)


def violations(truth: Truth, wish: Wish, deliveries: Sequence[Delivery]) -> Iterator[str]:
    """Every promise that was broken to a consumer, once it has acknowledged all there was."""
    by_key: dict[Key, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_key[delivery.key].append(delivery)
    for key, given in by_key.items():
        yield from (f"{wish.name}: {key}: {what}" for what in _of_item(truth, wish, key, given))
    if wish.collapse:
        yield from (f"{wish.name}: {what}" for what in _missing(truth, wish, by_key))
    else:
        yield from (f"{wish.name}: {what}" for what in _missing_events(truth, wish, by_key))
        yield from (f"{wish.name}: {what}" for what in _of_lines(truth, wish, by_key))
    yield from (f"{wish.name}: {what}" for what in _of_truncates(truth, by_key, wish))
    if wish.group_by:
        yield from (f"{wish.name}: {what}" for what in _of_groups(wish.group_by, deliveries))
    if wish.max_unacknowledged:
        yield from (f"{wish.name}: {what}" for what in _beyond(wish.max_unacknowledged, deliveries))


def _of_item(truth: Truth, wish: Wish, key: Key, given: Sequence[Delivery]) -> Iterator[str]:
    known = {change.seq: change for change in (truth.items if wish.collapse else truth.events).get(key, ())}
    for one in given:
        change = known.get(one.seq)
        if change is None or (change.action, change.record) != (one.action, one.record):
            yield f"was given {one.action} at seq {one.seq}, which the log has not"
        if wish.tables and key[0] not in wish.tables:
            yield "was not asked for"
        for other in given:
            yield from _of_two(one, other)


def _of_two(one: Delivery, other: Delivery) -> Iterator[str]:
    if one is other:
        return
    if one.after < other.before and other.seq < one.seq:
        yield f"seq {other.seq} was given after {one.seq}"
    if one.acked and one.acked_after < other.before and other.seq <= one.seq:
        yield f"seq {other.seq} was given after {one.seq} had been acknowledged"
    if one.acked and not other.void and one.after < other.before and other.after < one.acked_before:
        yield f"a late acknowledgement of seq {one.seq} has settled the delivery of {other.seq}"
    if _inside(other, one):
        yield f"seq {other.seq} was given while another client had {one.seq}"


def _inside(other: Delivery, one: Delivery) -> bool:
    """Whether one delivery was made while another was surely out."""
    return one.after < other.before and other.after < one.until


def _missing(truth: Truth, wish: Wish, by_key: Mapping[Key, Sequence[Delivery]]) -> Iterator[str]:
    """At least once: the last change of every row was given and acknowledged, and no other was the last."""
    for key, changes in truth.items.items():
        if wish.tables and key[0] not in wish.tables:
            continue
        last = changes[-1]
        if last.seq < max(truth.truncates.get(key[0], [0])):
            continue
        if not any(one.seq == last.seq and one.acked is not False for one in by_key.get(key, ())):
            yield f"{key}: {last.action} at seq {last.seq}, its last change, was never given and acknowledged"


def _missing_events(truth: Truth, wish: Wish, by_key: Mapping[Key, Sequence[Delivery]]) -> Iterator[str]:
    """At least once, where each event is an item: every one was given and acknowledged."""
    for key, (change,) in truth.events.items():
        wanted = not wish.tables or key[0] in wish.tables
        if wanted and not any(one.acked is not False for one in by_key.get(key, ())):
            yield f"{key}: {change.action} at seq {change.seq} was never given and acknowledged"


def _of_lines(truth: Truth, wish: Wish, by_key: Mapping[Key, Sequence[Delivery]]) -> Iterator[str]:
    """Of a row one at a time, in order: each once all before it are acknowledged."""
    for line, keys in truth.lines.items():
        # Dead letters hold nothing back, and come when a user retries them, of their new key alone.
        mine = [key for key in keys if key[1] == line[1] or not wish.max_deliveries]
        yield from (f"{line}: {what}" for what in _one_at_a_time([one for key in mine for one in by_key.get(key, ())]))
        if wish.max_deliveries:
            continue
        for before, key in pairwise(keys):
            acked = min((one.acked_before for one in by_key.get(before, ()) if one.acked is not False), default=FOREVER)
            for one in by_key.get(key, ()):
                if one.after <= acked:
                    yield f"{line}: seq {one.seq} was given before {before[2]} had been acknowledged"


def _one_at_a_time(given: Sequence[Delivery]) -> Iterator[str]:
    for one in given:
        for other in given:
            if one is not other and (_inside(other, one) or one.batch == other.batch):
                yield f"seq {other.seq} was given while another client had {one.seq}"


def _of_truncates(truth: Truth, by_key: Mapping[Key, Sequence[Delivery]], wish: Wish) -> Iterator[str]:
    """What came before a truncate comes before it, and what came after it comes after its acknowledgement."""
    for table, seqs in truth.truncates.items():
        rows = [one for key, given in by_key.items() if key[0] == table for one in given]
        emptied = {seq: by_key.get((table, "", seq), ()) for seq in seqs}
        if wish.max_deliveries:  # dead letters hold nothing back, and come when a user retries them
            continue
        for one in rows:
            yield from (f"{table}: {what}" for what in _too_late(one, emptied))
            yield from (f"{table}: {what}" for what in _too_soon(one, emptied))


def _too_late(one: Delivery, emptied: Mapping[int, Sequence[Delivery]]) -> Iterator[str]:
    for seq, given in emptied.items():
        if one.seq < seq and any(t.after < one.before for t in given if not t.void):
            yield f"seq {one.seq} was given after the truncate at {seq}"
        if one.seq < seq and any(_inside(t, one) for t in given):
            yield f"the truncate at {seq} was given while {one.seq} was out"


def _too_soon(one: Delivery, emptied: Mapping[int, Sequence[Delivery]]) -> Iterator[str]:
    last = max((seq for seq in emptied if seq < one.seq), default=0)
    settled = [t.acked_before for t in emptied.get(last, ()) if t.acked is not False]
    if not settled and max(emptied) >= one.seq:  # a later truncate has made this one void
        return
    if last and min(settled, default=FOREVER) >= one.after:
        yield f"seq {one.seq} was given before the truncate at {last} had been acknowledged"


def _of_groups(column: str, deliveries: Sequence[Delivery]) -> Iterator[str]:
    groups: dict[Any, list[Delivery]] = defaultdict(list)
    for one in deliveries:
        if column in one.record:
            groups[one.record[column]].append(one)
    for group, given in groups.items():
        yield from (f"group {group}: {what}" for what in _one_at_a_time(given))


def _beyond(limit: int, deliveries: Sequence[Delivery]) -> Iterator[str]:
    batches: dict[int, list[Delivery]] = defaultdict(list)
    for one in deliveries:
        batches[one.batch].append(one)
    for given in batches.values():
        out = sum(_inside(given[0], one) for one in deliveries) + len(given)
        if out > limit:
            yield f"{out} items were out, {limit} are allowed"
