"""The report of `pipeline verify`: its checks, and the error of each row that breaks a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pipeline.wal import lsn

SHOWN = 20
"""The number of rows that a check names; all are counted."""
GAPS = "with gaps only for annotations and in rows that were read"
MIXED = ("its transaction has both changes and rows that were read", "only changes, or only rows that were read")
"""The error for a row whose transaction mixes changes with read rows, and the expected state."""
Row = dict[str, Any]


@dataclass(frozen=True)
class RuleViolation:
    """A row that breaks a rule, or the place of a missing row. The LSN is as Postgres prints it, None without a row."""

    seq: int | None
    source_epoch: int | None
    commit_lsn: str | None
    commit_idx: int | None
    table: str | None
    wrong: str
    expected: str

    JSON: ClassVar = (
        "seq",
        "source_epoch",
        "commit_lsn",
        "commit_lsn_bytes",
        "commit_idx",
        "table",
        "wrong",
        "expected",
    )

    @property
    def commit_lsn_bytes(self) -> int | None:
        """The LSN as an integer, as the log stores it."""
        return None if self.commit_lsn is None else lsn.parse(self.commit_lsn)


@dataclass
class RuleCheck:
    """One rule, how many rows or transactions were checked, and its violations.

    `broken` counts all violations, `faults` holds the first SHOWN. `not_checked`: why the rule could not be checked,
    which is no violation.
    """

    name: str
    rule: str
    noun: str
    checked: int = 0
    broken: int = 0
    faults: list[RuleViolation] = field(default_factory=list)
    not_checked: str | None = None

    def add(self, violation: RuleViolation) -> None:
        """Add a violation."""
        self.broken += 1
        if len(self.faults) < SHOWN:
            self.faults.append(violation)

    def require(self, holds: bool, row: Row | None, wrong: str, expected: str) -> None:
        """Count one check, and add a violation unless `holds`."""
        self.checked += 1
        if not holds:
            self.add(of_row(row, wrong, expected))


@dataclass(frozen=True)
class LogVerification:
    """A report on the log. `rows` were read up to `last_seq`; `unplaced` of them are legacy rows without a position."""

    source_id: str | None = None
    events_table: str | None = None
    first_seq: int = 0
    last_seq: int = 0
    rows: int = 0
    unplaced: int = 0
    transactions: int = 0
    seconds: float = 0.0
    checks: list[RuleCheck] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    """All events tables, if there are several."""

    @property
    def ok(self) -> bool:
        """True if there is no violation; rules that were not checked do not count."""
        return not any(check.broken for check in self.checks)


def of_row(row: Row | None, wrong: str, expected: str) -> RuleViolation:
    """The violation of a row as the SQL returns it; without a row when `row` is None."""
    known = row or {}
    position = known.get("commit_lsn")
    return RuleViolation(
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


def disordered(row: Row) -> RuleViolation:
    """A row whose position is not above the position of the row before."""
    before = place(row["before_epoch"], row["before_lsn"], row["before_idx"])
    here = (row["source_epoch"], row["commit_lsn"], row["commit_idx"])
    same = here == (row["before_epoch"], row["before_lsn"], row["before_idx"])
    wrong = "has the position of the row before it" if same else "is not after the row before it"
    return of_row(row, f"{wrong}, seq {row['before_seq']}", f"a position after {before}")


def gapped(row: Row) -> RuleViolation:
    """A row before which changes of its transaction are missing."""
    first = row["before_idx"] + 1 if row["continues"] else 0
    last = row["commit_idx"] - 1
    missing = f"commit_idx {first}" if first == last else f"commit_idx {first} to {last}"
    wrong = f"{missing} of its transaction missing, and no annotation of this row or the one before it explains that"
    return of_row(row, wrong, f"commit_idx {first}")


def torn(row: Row) -> RuleViolation:
    """A row that differs from the previous row in a value that must be the same in all rows of a transaction."""
    for name in ("xid", "committed_at"):
        if row[name] != row[f"before_{name}"]:
            expected = f"{name} {row[f'before_{name}']}, as seq {row['before_seq']} of its transaction"
            return of_row(row, f"its {name} is {row[name]}", expected)
    if "read" in (row["kind"], row["before_kind"]) and row["kind"] != row["before_kind"]:
        return of_row(row, *MIXED)
    wrong = f"its transaction has no row at seq {row['before_seq'] + 1}"
    return of_row(row, wrong, "a transaction's rows without a gap in seq")


def skips(row: Row) -> RuleViolation:
    """A place where rows may be missing, reported if some rows are known to be missing."""
    first, last = row["before_seq"] + 1, row["seq"] - 1
    wrong = f"no rows from seq {first} to {last} before it" if first < last else f"no row at seq {first} before it"
    return of_row(row, wrong, "perhaps rows: a gap is allowed here, but some rows are missing in all")


RULES: dict[str, Callable[[Row], RuleViolation]] = {"disordered": disordered, "gapped": gapped, "torn": torn}
"""The rules by which `sql/verify_rows.sql` checks rows."""
