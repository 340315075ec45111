"""What `pipeline verify` says: its checks, and of a row that breaks a rule what is wrong and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.wal import lsn

SHOWN = 20
"""Rows a check names; more are counted."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One row, or where one should be. LSN as Postgres prints it; None: there is no such row, or it has no position."""

    seq: int | None
    source_epoch: int | None
    commit_lsn: str | None
    commit_idx: int | None
    table: str | None
    wrong: str
    expected: str


@dataclass
class Check:
    """One rule, on how many rows or transactions it was looked at, and what breaks it.

    `broken` counts all, `faults` names the first. `not_checked`: why it could not be looked at; it then holds nothing
    against the log.
    """

    name: str
    rule: str
    noun: str
    checked: int = 0
    broken: int = 0
    faults: list[Fault] = field(default_factory=list)
    not_checked: str | None = None

    def add(self, fault: Fault) -> None:
        """One more that breaks it."""
        self.broken += 1
        if len(self.faults) < SHOWN:
            self.faults.append(fault)

    def require(self, holds: bool, row: Row | None, wrong: str, expected: str) -> None:
        """Looked at once more; a fault unless it holds."""
        self.checked += 1
        if not holds:
            self.add(of_row(row, wrong, expected))


@dataclass(frozen=True)
class Verification:
    """What was verified. `rows` were read up to `last_seq`; `unplaced` of them are from before a migration."""

    source_id: str | None = None
    events_table: str | None = None
    first_seq: int = 0
    last_seq: int = 0
    rows: int = 0
    unplaced: int = 0
    transactions: int = 0
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    """All of them, where there are several."""

    @property
    def ok(self) -> bool:
        """Whether nothing is broken; what was not checked does not count."""
        return not any(check.broken for check in self.checks)


def of_row(row: Row | None, wrong: str, expected: str) -> Fault:
    """A fault of a row as the SQL gives it; of none when `row` is None."""
    known = row or {}
    position = known.get("commit_lsn")
    return Fault(
        known.get("seq"),
        known.get("source_epoch"),
        None if position is None else lsn.show(position),
        known.get("commit_idx"),
        known.get("table_name"),
        wrong,
        expected,
    )


def place(epoch: int | None, commit_lsn: int | None, idx: int | None) -> str:
    """A position in a source's history, as text."""
    if commit_lsn is None:
        return "no position"
    return f"epoch {epoch}, {lsn.show(commit_lsn)}" + ("" if idx is None else f", idx {idx}")


def disordered(row: Row) -> Fault:
    """Its position is not above that of the row before it."""
    before = place(row["before_epoch"], row["before_lsn"], row["before_idx"])
    here = (row["source_epoch"], row["commit_lsn"], row["commit_idx"])
    same = here == (row["before_epoch"], row["before_lsn"], row["before_idx"])
    wrong = "has the position of the row before it" if same else "is not after the row before it"
    return of_row(row, f"{wrong}, seq {row['before_seq']}", f"a position after {before}")


def gapped(row: Row) -> Fault:
    """Changes of its transaction are missing before it."""
    first = row["before_idx"] + 1 if row["continues"] else 0
    last = row["commit_idx"] - 1
    missing = f"commit_idx {first}" if first == last else f"commit_idx {first} to {last}"
    wrong = f"{missing} of its transaction missing, and no annotation of this row or the one before it explains that"
    return of_row(row, wrong, f"commit_idx {first}")


def torn(row: Row) -> Fault:
    """It differs from the row before it in what one transaction has in common."""
    for name in ("xid", "committed_at"):
        if row[name] != row[f"before_{name}"]:
            expected = f"{name} {row[f'before_{name}']}, as seq {row['before_seq']} of its transaction"
            return of_row(row, f"its {name} is {row[name]}", expected)
    wrong = f"its transaction has no row at seq {row['before_seq'] + 1}"
    return of_row(row, wrong, "a transaction's rows without a gap in seq")


def skips(row: Row) -> Fault:
    """Where rows may be missing, when it is known that some are."""
    first, last = row["before_seq"] + 1, row["seq"] - 1
    wrong = f"no rows from seq {first} to {last} before it" if first < last else f"no row at seq {first} before it"
    return of_row(row, wrong, "perhaps rows: a gap here is allowed, but some are missing")


RULES: dict[str, Callable[[Row], Fault]] = {"disordered": disordered, "gapped": gapped, "torn": torn}
"""What `sql/verify_rows.sql` judges rows by."""
