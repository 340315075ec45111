"""What the writers did, and what the log must therefore be. Nothing of the product is known here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, NamedTuple

import psycopg

from tests.torture.order import CommitRecord
from tests.torture.plan import Change, Effect
from tests.torture.statements import TOASTED

Fate = Literal["open", "committed", "rolled back", "prepared", "unknown"]


@dataclass
class Transaction:
    """`fate` as its writer knows it; `unknown` when the connection was lost at the statement that decides."""

    number: int
    xid: int
    changes: list[Change] = field(default_factory=list)
    fate: Fate = "open"


class Event(NamedTuple):
    """A row of the log without its seq, as it must be and as it is."""

    xid: int
    commit_lsn: int
    commit_idx: int
    change: Change


class Model:
    """Every transaction by its number. Each is written to by one thread at a time."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}

    def begin(self, number: int, xid: int) -> Transaction:
        """`number` is in one of the journals if and only if the transaction has committed."""
        self.transactions[number] = Transaction(number, xid)
        return self.transactions[number]

    def resolve(self, journal: set[int]) -> list[Transaction]:
        """Those that have committed, in no order.

        The journal, written to by every transaction, is asked and not pg_xact_status: after a crash an xid of which
        nothing had reached the disk is given out a second time. Fails where the source contradicts a writer.
        """
        for transaction in self.transactions.values():
            there = transaction.number in journal
            known = {"committed": True, "rolled back": False}.get(transaction.fate)
            assert known in (None, there), f"a writer was told {transaction.fate}, the source holds: {transaction}"
        strangers = journal - self.transactions.keys()
        assert not strangers, f"the source holds transactions that no writer made: {sorted(strangers)}"
        return [self.transactions[number] for number in sorted(journal)]

    def expected(self, journal: set[int], records: Sequence[CommitRecord]) -> Iterator[Event]:
        """The log as it must be: whole transactions in the order of their commit records."""
        by_xid = {transaction.xid: transaction for transaction in self.resolve(journal)}
        assert len(by_xid) == len(journal), "two committed transactions have one xid"
        missing = by_xid.keys() - {record.xid for record in records}
        assert not missing, f"committed, but without a commit record in the WAL: xid {sorted(missing)}"
        for record in records:
            if record.xid in by_xid:
                for index, change in enumerate(by_xid[record.xid].changes):
                    yield Event(record.xid, record.lsn, index, change)


def read_journal(source: psycopg.Connection) -> set[int]:
    """The transactions that have committed, by the source's own tables."""
    rows = source.execute("select n from public.journal union all select n from private.journal")
    return {number for (number,) in rows}


def change_of(effect: Effect, row: Sequence[str | None]) -> Change:
    """What a returned row must look like as an event."""
    values = dict(zip(effect.columns, row, strict=True))
    key = [values[column] for column in effect.key]
    unchanged = tuple(column for column in effect.kept if len(values[column] or "") >= TOASTED)
    for column in unchanged:
        del values[column]
    text = f"[{','.join(map(str, key))}]" if len(key) > 1 else "".join(map(str, key))
    return Change(effect.table, effect.action, text, values, unchanged)


def read_log(database: psycopg.Connection, table: str = "public.sequin_events") -> Iterator[Event]:
    """Every event by seq."""
    query = f"""
        select xid, commit_lsn, commit_idx, source_table_schema || '.' || source_table_name, action, record_pk,
            coalesce((select json_object_agg(key, value) from jsonb_each_text(record)), '{{}}'),
            coalesce(unchanged_columns, '{{}}')
        from {table} order by seq"""
    for xid, commit_lsn, commit_idx, where, action, key, values, unchanged in database.execute(query):
        yield Event(xid, commit_lsn, commit_idx, Change(where, action, key, values, tuple(unchanged)))


def first_difference(events: Iterable[Event], expected: Iterable[Event]) -> str | None:
    """Where the log is not the model, in words; None when they are equal."""
    before: Event | None = None
    for place, (event, wanted) in enumerate(zip_longest(events, expected), 1):
        if event != wanted:
            return (
                f"event {place} differs\n  the log has       {show(event)}\n  the source wrote  {show(wanted)}"
                f"\n  both have before  {show(before)}"
            )
        before = event
    return None


def show(event: Event | None) -> str:
    """One line, long values cut."""
    if event is None:
        return "nothing"
    change = event.change
    values = {
        name: value if len(value or "") < 60 else f"{(value or '')[:50]}…" for name, value in change.values.items()
    }
    lsn = f"{event.commit_lsn >> 32:X}/{event.commit_lsn & 0xFFFFFFFF:X}"
    unchanged = f" unchanged {', '.join(change.unchanged)}" if change.unchanged else ""
    return (
        f"xid {event.xid} at {lsn} #{event.commit_idx} {change.action} {change.table} {change.key} {values}{unchanged}"
    )
