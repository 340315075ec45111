"""What rows that were read must be: each as the table was at that place in commit order, and all of them there in time.

The state of the tables is folded twice, from the log and from the model, side by side in the order of commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tests.torture.oracle.comparing import Logged, columns_differ, show_logged
from tests.torture.oracle.model import Event, Model
from tests.torture.oracle.order import CommitRecord
from tests.torture.plan.plan import Change, Values

Rows = dict[str, Values]
KEYS = {"items": ("id",), "lines": ("item", "no"), "whole": ("id",), "journal": ("n",)}
"""Columns of keys; of all other tables `id`, where they have one."""
_NEVER = 1 << 63


def is_made(table: str) -> bool:
    """Whether it is a table that joined while it had rows."""
    return table.startswith("public.made_")


def _is_folded(table: str) -> bool:
    return table.startswith("public.") and not table.startswith("public.scratch_")


def key(table: str, row: Mapping[str, str | None]) -> str:
    """As `record_pk` has it."""
    values = [str(row[name]) for name in KEYS.get(table.partition(".")[2], ("id",))]
    return f"[{','.join(values)}]" if len(values) > 1 else values[0]


def places(joined: Mapping[str, int], records: Sequence[CommitRecord]) -> dict[str, int]:
    """By table, where its updates were published. `joined`: by which xid."""
    placed = {record.xid: record.lsn for record in records}
    return {table: placed.get(xid, _NEVER) for table, xid in joined.items()}


def published(expected: Iterable[Event], log: Iterable[Logged], model: Model, since: Mapping[str, int]) -> list[Event]:
    """What of the model must be in the log: of a table that is made while the server runs, what came after it joined.

    `since`: by table, where that was. Of a transaction that had begun by then, a change may be there or not, as it
    comes.
    """
    begun = {transaction.xid: transaction.begun_lsn for transaction in model.transactions.values()}
    there = {lsn: list(group) for lsn, group in groupby(_changes(log), key=lambda event: event.commit_lsn)}
    found = []
    for lsn, group in groupby(expected, key=lambda event: event.commit_lsn):
        events = list(group)
        if any(is_made(event.change.table) for event in events):
            begins = begun.get(events[0].xid, 0)
            required = [not is_made(e.change.table) or since.get(e.change.table, _NEVER) < begins for e in events]
            events = list(_as_they_came(events, required, there.get(lsn, [])))
        found += events
    return found


def _changes(log: Iterable[Logged]) -> Iterator[Logged]:
    return (event for event in log if event.action != "read")


def _as_they_came(events: Sequence[Event], required: Sequence[bool], there: Sequence[Logged]) -> Iterator[Event]:
    """Without the changes that are not there and need not be; before a table has its key, its events have none."""
    index = 0
    for event, must in zip(events, required, strict=True):
        change = event.change
        logged = there[index] if index < len(there) else None
        if not must:
            if logged is None or (logged.table, logged.action) != (change.table, change.action):
                continue
            if logged.key == "":
                change = change._replace(key="")
            change = change._replace(early=True)
            if logged.key != change.key or columns_differ(logged, change):
                continue
        yield event._replace(commit_idx=index, change=change)
        index += 1


@dataclass
class _Table:
    """`log`: the newest event of each row by its key, as a reader folds them. `altered`: rows were not only added."""

    log: dict[str, Logged] = field(default_factory=dict)
    model: Rows = field(default_factory=dict)
    whole: bool = False
    bag: Counter[frozenset[tuple[str, str]]] = field(default_factory=Counter)
    altered: bool = False


class Folding:
    """Compares the log with the model at each commit. `reads` counts rows that were read, by table."""

    def __init__(
        self,
        before: Mapping[str, Rows],
        complete: Mapping[str, int],
        since: Mapping[str, int] | None = None,
        rewritten: Collection[str] = (),
    ) -> None:
        """`before`: rows that were there before the server; `complete`: by table, its complete_seq.

        `since`: by table, where it joined: one that was empty there is complete from there, and has a complete_seq of
        0, also where it had rows before. `rewritten`: tables that DDL has rewritten, as far as the server can tell:
        from then on it may name values instead of filling them in.
        """
        self._rewritten = frozenset(rewritten)
        self._tables: dict[str, _Table] = {table: _Table(model=dict(rows)) for table, rows in before.items()}
        self._complete = complete
        self._since = since or {}
        self.reads: Counter[str] = Counter()

    def fault(self, log: Iterable[Logged], expected: Iterable[Event]) -> str | None:
        """The first difference, in words. `expected`: all changes, also those that were not published."""
        groups = groupby(expected, key=lambda event: event.commit_lsn)
        coming = next(groups, None)
        for lsn, events in groupby(log, key=lambda event: event.commit_lsn):
            logged = list(events)
            is_read = any(event.action == "read" for event in logged)
            touched: set[tuple[str, str]] = set()
            while coming is not None and (coming[0] < lsn or (coming[0] == lsn and not is_read)):
                touched |= self._write(event.change for event in coming[1])
                coming = next(groups, None)
            if is_read and (wrong := self._read(logged, changes=coming is not None and coming[0] == lsn)):
                return wrong
            touched |= self._fold(logged)
            if wrong := self._compare(touched, logged[-1].seq, lsn):
                return f"after seq {logged[-1].seq}: {wrong}"
        return next((f"in the end: {wrong}" for name in self._tables if (wrong := self._all(name))), None)

    def _table(self, name: str) -> _Table:
        return self._tables.setdefault(name, _Table())

    def _write(self, changes: Iterable[Change]) -> set[tuple[str, str]]:
        touched: set[tuple[str, str]] = set()
        for change in changes:
            if not _is_folded(change.table):
                continue
            rows = self._table(change.table).model
            self._tables[change.table].altered |= change.action in ("update", "delete")
            if change.action == "truncate":
                touched |= {(change.table, key) for key in rows}
                rows.clear()
                continue
            for each in {change.was or change.key, change.key}:
                rows.pop(each, None)
                touched.add((change.table, each))
            if change.action != "delete":
                rows[change.key] = change.values
        return touched

    def _read(self, logged: Sequence[Logged], *, changes: bool) -> str | None:
        """Rows of one range: their places, and that each is what its table has there."""
        shown = f"\n  the log has  {show_logged(logged[0])}"
        if changes or any(event.action != "read" for event in logged):
            return f"rows that were read stand where a change is{shown}"
        if [event.commit_idx for event in logged] != list(range(1, len(logged) + 1)):
            return f"commit_idx of rows that were read are {[event.commit_idx for event in logged][:9]}{shown}"
        if len({(event.table, event.xid) for event in logged}) > 1:
            return f"rows of several tables or transactions have one place{shown}"
        self.reads[logged[0].table] += len(logged)
        return next((wrong for event in logged if (wrong := self._read_row(event))), None)

    def _read_row(self, event: Logged) -> str | None:
        if not _is_folded(event.table):
            return None
        there = self._table(event.table).model.get(key(event.table, event.record))
        if there is None:
            return f"a row was read that is not there at that place\n  the log has  {show_logged(event)}"
        if wrong := columns_differ(event, Change(event.table, "read", event.key, there)):
            return f"a row was read as it is not at that place: {wrong}\n  the log has  {show_logged(event)}"
        return None

    def _fold(self, logged: Iterable[Logged]) -> set[tuple[str, str]]:
        """As a reader of the log does."""
        touched: set[tuple[str, str]] = set()
        for event in logged:
            if not _is_folded(event.table):
                continue
            table = self._table(event.table)
            if event.action == "truncate":
                touched |= {(event.table, key) for key in table.log}
                table.log.clear()
                table.bag.clear()
            elif not event.key:
                table.bag[frozenset(event.record.items())] += 1
            else:
                old = key(event.table, {**event.record, **event.changes}) if event.changes else event.key
                for each in {old, event.key}:
                    table.log.pop(each, None)
                    touched.add((event.table, each))
                if event.action != "delete":
                    table.log[event.key] = event
        return touched

    def _compare(self, touched: Iterable[tuple[str, str]], seq: int, lsn: int) -> str | None:
        for name, table in self._tables.items():
            if not table.whole and self._complete.get(name, _NEVER) <= seq and self._since.get(name, 0) < lsn:
                table.whole = True
                if wrong := self._all(name):
                    return wrong
        for name, key in touched:
            if wrong := self._differs(name, key):
                return wrong
        return None

    def _all(self, name: str) -> str | None:
        table = self._tables[name]
        if table.bag and not table.log:
            return self._bags_differ(name)
        if name in self._complete and not table.whole and table.model:
            table.whole = True  # the log has ended before
        found = (wrong for key in table.log.keys() | table.model.keys() if (wrong := self._differs(name, key)))
        return next(found, None)

    def _bags_differ(self, name: str) -> str | None:
        """Of a table that has no key until the end: its updates and deletes, as of one whose key was lost in a crash,
        are not in the log.
        """
        table = self._tables[name]
        if name not in self._complete or table.altered:
            return None
        has, wanted = table.bag.total(), len(table.model)
        return None if has == wanted else f"{name} has {wanted} rows, and the log {has}"

    def _is_early(self, name: str, event: Logged | None) -> bool:
        """Whether it is of a table that had a key already, and whose updates and deletes were not captured yet."""
        return event is not None and event.commit_lsn < self._since.get(name, 0)

    def _differs(self, name: str, key: str) -> str | None:
        table = self._tables[name]
        if table.bag and not table.log:  # it has no key
            return self._bags_differ(name) if table.whole else None
        event, wanted = table.log.get(key), table.model.get(key)
        if self._is_early(name, event) and (wanted is None or not table.whole):
            return None
        if event is None:
            return f"{name} has row {key}, and the log has not" if wanted is not None and table.whole else None
        if wanted is None:
            return f"{name} has no row {key}, and the log has {show_logged(event)}"
        if table.whole and event.unchanged and name not in self._rewritten:
            return f"{name} is complete, and of row {key} {event.unchanged} are not known"
        if wrong := columns_differ(event, Change(name, event.action, key, wanted, tuple(event.unchanged))):
            return f"row {key} of {name}: {wrong}"
        return None
