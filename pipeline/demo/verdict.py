"""The check: compares what the writers recorded with the log. Pure, and independent of how the log is made.

These rules must hold, and can be checked without the product:

- each committed transaction is in the log once, complete, its changes in the order of its statements, all values equal;
- the log has nothing else: no rolled back transaction, no part undone by a savepoint, nothing unknown;
- a transaction that began after another's commit had returned comes after it;
- an existing row is read at least once, each time with the values that it has after all earlier events of the log;
- each row's events are consistent: inserted at version 1, each update one version later, nothing after its delete;
- seq, commit_lsn and commit_idx have the same order, and commit_lsn is where the WAL itself has the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from operator import attrgetter

Values = Mapping[str, str | None]
"""Column to the text that Postgres prints, None for NULL."""


@dataclass(frozen=True)
class RowChange:
    """A change of one row. `values`: for a delete, the replica identity's; `old`: old values that the WAL has."""

    table: str
    action: str
    key: tuple[str, ...]
    values: Values
    old: Values | None = None

    def __str__(self) -> str:
        return f"{self.action} of {self.table} {', '.join(self.key)}"


@dataclass(frozen=True)
class RecordedTransaction:
    """A transaction as its writer knows it. `began` and `ended`: by one clock, before BEGIN and after COMMIT."""

    xid: int
    began: float
    ended: float
    changes: tuple[RowChange, ...]


@dataclass
class WriterRecord:
    """The work of the writers. `silent`: xids of transactions that must leave no event, such as those rolled back.

    `commit_lsns`: by xid, the LSN of the commit in the WAL; xids that are missing here are not compared. `before`: rows
    that existed before the server, by table and key.
    """

    committed: list[RecordedTransaction] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    commit_lsns: Mapping[int, int] = field(default_factory=dict)
    before: dict[tuple[str, tuple[str, ...]], Values] = field(default_factory=dict)


@dataclass(frozen=True)
class ReceivedEvent:
    """A row of sequin_events."""

    seq: int
    commit_lsn: int
    commit_idx: int
    xid: int
    change: RowChange


def verdict(record: WriterRecord, events: Iterable[ReceivedEvent]) -> list[str]:
    """Return all differences, in plain words; none if every change arrived once, in order. `events`: as read."""
    arrived = [list(group) for _, group in groupby(events, key=attrgetter("xid"))]
    known = {transaction.xid: transaction for transaction in record.committed}
    differences = [
        *_unexpected((group for group in arrived if not _is_read(group)), known.keys(), record.silent),
        *_missing(arrived, record.committed),
        *_positions(arrived, record.commit_lsns),
        *_disorder([known[group[0].xid] for group in arrived if group[0].xid in known]),
        *_inconsistent_rows((event for group in arrived for event in group), record.before.keys()),
        *_not_as_read((event for group in arrived for event in group), record.before),
    ]
    for group in arrived:
        if group[0].xid in known:
            differences += _differences(known[group[0].xid], group)
    return differences


def _is_read(group: Sequence[ReceivedEvent]) -> bool:
    return group[0].change.action == "read"


def _unexpected(arrived: Iterable[Sequence[ReceivedEvent]], known: Set[int], silent: Set[int]) -> Iterator[str]:
    seen: set[int] = set()
    for group in arrived:
        first = group[0]
        if first.xid in silent:
            yield f"seq {first.seq}: {first.change} by transaction {first.xid}, which was rolled back"
        elif first.xid not in known:
            yield f"seq {first.seq}: {first.change} by transaction {first.xid}, which no writer knows"
        elif first.xid in seen:
            yield f"seq {first.seq}: {first.change} by transaction {first.xid}, which had earlier events"
        seen.add(first.xid)


def _missing(arrived: Sequence[Sequence[ReceivedEvent]], committed: Iterable[RecordedTransaction]) -> Iterator[str]:
    seen = {group[0].xid for group in arrived}
    for transaction in committed:
        if transaction.xid not in seen:
            changes = transaction.changes
            yield f"transaction {transaction.xid} is missing; changes: {len(changes)}, the first an {changes[0]}"


def _lsn(number: int) -> str:
    """Return an LSN as Postgres prints it. This copy exists because the verdict must not use code of the product."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _positions(arrived: Sequence[Sequence[ReceivedEvent]], commit_lsns: Mapping[int, int]) -> Iterator[str]:
    seq = lsn = 0
    for group in arrived:
        xid, at = group[0].xid, group[0].commit_lsn
        if at <= lsn:
            yield f"transaction {xid}: its commit_lsn {_lsn(at)} is not above {_lsn(lsn)}, the one before"
        if at != commit_lsns.get(xid, at):
            in_wal = _lsn(commit_lsns[xid])
            yield f"transaction {xid}: its commit_lsn is {_lsn(at)}, and the WAL has its commit at {in_wal}"
        lsn = at
        for idx, event in enumerate(group, 1 if _is_read(group) else 0):
            if event.seq <= seq:
                yield f"seq {event.seq} comes after {seq}"
            if (event.commit_lsn, event.commit_idx) != (at, idx):
                here = f"{_lsn(event.commit_lsn)}, {event.commit_idx}"
                yield f"seq {event.seq}: is at {here}; {_lsn(at)}, {idx} was expected"
            seq = event.seq


def _disorder(transactions: Iterable[RecordedTransaction]) -> Iterator[str]:
    latest: RecordedTransaction | None = None
    for transaction in transactions:
        if latest is not None and transaction.ended < latest.began:
            yield f"transaction {transaction.xid} comes after {latest.xid}, which began only after this commit"
        if latest is None or transaction.began > latest.began:
            latest = transaction


def _not_as_read(
    events: Iterable[ReceivedEvent], before: Mapping[tuple[str, tuple[str, ...]], Values]
) -> Iterator[str]:
    rows, known = dict(before), set()
    for event in events:
        change = event.change
        row = change.table, change.key
        known.add(row)
        if change.action == "delete":
            rows.pop(row, None)
        elif change.action != "read":
            rows[row] = change.values
        elif row not in rows:
            yield f"seq {event.seq}: {change}, a row that is not there"
        elif rows[row] != change.values:
            wanted = RowChange(change.table, "read", change.key, rows[row])
            yield f"seq {event.seq}: {_contrast(wanted, change)}"
    for table, key in rows.keys() - known:
        yield f"{table} {', '.join(key)} existed before the server, and the log does not have it"


def _inconsistent_rows(
    events: Iterable[ReceivedEvent], existing: Iterable[tuple[str, tuple[str, ...]]]
) -> Iterator[str]:
    versions = dict.fromkeys(existing, 1)
    for event in events:
        change = event.change
        if change.action == "read":
            continue
        row = change.table, change.key
        before = versions.get(row, 0)
        if change.action == "delete":
            if not before:
                yield f"seq {event.seq}: {change}, a row that is not there"
            versions.pop(row, None)
            continue
        version = int(change.values.get("version") or 0)
        if version != before + 1 or (change.action == "insert") != (before == 0):
            yield f"seq {event.seq}: {change} to version {version}, but the row was at version {before or 'none'}"
        versions[row] = version


def _differences(transaction: RecordedTransaction, group: Sequence[ReceivedEvent]) -> Iterator[str]:
    """Yield the first difference inside a transaction: further differences mostly follow from it."""
    for idx, (wanted, event) in enumerate(zip_longest(transaction.changes, group)):
        where = f"transaction {transaction.xid}, change {idx}"
        if event is None:
            yield f"{where}: {wanted} is missing"
            return
        if wanted is None:
            yield f"{where}: {event.change} (seq {event.seq}) is one too many"
            return
        if wanted != event.change:
            yield f"{where} (seq {event.seq}): {_contrast(wanted, event.change)}"
            return


def _contrast(wanted: RowChange, found: RowChange) -> str:
    if str(wanted) != str(found):
        return f"{found}, where the writer made an {wanted}"
    for what, ours, theirs in (("", wanted.values, found.values), ("old ", wanted.old or {}, found.old or {})):
        for column in sorted({*ours, *theirs}):
            if ours.get(column) != theirs.get(column) or (column in ours) != (column in theirs):
                return (
                    f"{wanted}: {what}{column} is {_shown(theirs, column)}, and the writer has {_shown(ours, column)}"
                )
    return f"{wanted}: old values are {'present' if found.old is not None else 'absent'}, which was not expected"


def _shown(values: Values, column: str) -> str:
    return repr(values[column]) if column in values else "absent"
