"""What the writers did, and what the log must therefore be. Nothing of the product is known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import psycopg

from tests.torture.oracle.order import CommitRecord
from tests.torture.plan.plan import Change, Effect
from tests.torture.plan.statements import TOASTED

Fate = Literal["open", "committed", "rolled back", "prepared", "unknown"]


@dataclass
class Transaction:
    """`fate` as its writer knows it; `unknown` when the connection was lost at the statement that decides."""

    number: int
    xid: int
    begun_lsn: int = 0
    """The end of the source's WAL before its first change."""
    changes: list[Change] = field(default_factory=list)
    fate: Fate = "open"


class Event(NamedTuple):
    """A row of the log without its seq, as it must be."""

    xid: int
    commit_lsn: int
    commit_idx: int
    change: Change


class Model:
    """Every transaction by its number. Each is written to by one thread at a time."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}

    def begin(self, number: int, xid: int, begun_lsn: int = 0) -> Transaction:
        """`number` is in one of the journals if and only if the transaction has committed."""
        self.transactions[number] = Transaction(number, xid, begun_lsn)
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

    def expected(
        self, journal: set[int], records: Sequence[CommitRecord], witnessed: Mapping[int, list[Change]]
    ) -> Iterator[Event]:
        """The log as it must be: whole transactions in the order of their commit records.

        `witnessed`: by xid, what comes after what a transaction's writer knows of (tests/torture/oracle/watching.py).
        """
        by_xid = {transaction.xid: transaction for transaction in self.resolve(journal)}
        assert len(by_xid) == len(journal), "two committed transactions have one xid"
        missing = by_xid.keys() - {record.xid for record in records}
        assert not missing, f"committed, but without a commit record in the WAL: xid {sorted(missing)}"
        for record in records:
            if record.xid in by_xid:
                changes = by_xid[record.xid].changes + witnessed.get(record.xid, [])
                for index, change in enumerate(changes):
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
    text = f"[{','.join(map(str, key))}]" if len(key) > 1 else "".join(map(str, key))
    return Change(effect.table, effect.action, text, values, unchanged, was=effect.was)
