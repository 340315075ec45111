"""Prints `verify`: its progress, each check, and the rows that violate it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.table import Table

from pipeline.operate.verify.violations import LogVerification, RuleCheck, RuleViolation
from pipeline.terminal import bars, drawing
from pipeline.terminal.drawing import EscapedText


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, int], None]]:
    """Show on a terminal how far `verify` has read, while the block runs. Standard output has only the result."""
    with bars.beside_output() as bar:
        task = bar.add_task("verifying", total=None)

        def show(first: int, reached: int, last: int) -> None:
            bar.update(task, description=f"seq {reached:,}", total=last - first + 1, completed=reached - first + 1)

        yield show


def show_verification(found: LogVerification) -> None:
    """Print one line for each check, then the rows that violate it, then the verdict."""
    if not found.checks:
        drawing.show("nothing to verify: no source has been replicated yet")
        return
    checks = drawing.table(("", "", "", ""), map(_checked, found.checks))
    drawing.show(checks, *(_violations(check) for check in found.checks if check.faults), Group(*_verdict(found)))


def _verdict(found: LogVerification) -> Iterator[EscapedText]:
    rate = found.rows / found.seconds if found.seconds else 0
    verdict = "no violations" if found.ok else drawing.count(sum(check.broken for check in found.checks), "violation")
    read = f"{drawing.count(found.rows, 'row')} in {drawing.count(found.transactions, 'transaction')}"
    where = f"from seq {found.first_seq} to {found.last_seq}" if found.rows else "without rows"
    yield EscapedText(f"{found.events_table} {where}: {verdict}", "bold")
    yield drawing.dim(f"{read}, {found.seconds:,.1f} s, {drawing.rate(rate)}")
    if found.tables:
        yield EscapedText(f"the events tables that were ever written were checked: {', '.join(found.tables)}")
    if found.unplaced:
        yield EscapedText(f"not checked: {drawing.count(found.unplaced, 'legacy row')} without a position")


def _checked(check: RuleCheck) -> tuple[EscapedText, str, str, EscapedText]:
    level, state = "ok", "ok"
    if check.broken:
        level, state = "error", "broken"
    elif check.not_checked and not check.checked:
        level, state = "warning", "not checked"
    note = check.rule + (f"; not checked: {check.not_checked}" if check.not_checked else "")
    return (
        EscapedText(state, drawing.LEVEL_STYLES[level]),
        check.name,
        drawing.count(check.checked, check.noun),
        drawing.dim(note),
    )


def _violations(check: RuleCheck) -> Table:
    columns = (check.name, "epoch", "commit_lsn", "idx", "table", "wrong", "expected")
    table = drawing.table(columns, map(_violation, check.faults))
    if check.broken > len(check.faults):
        table.add_row(EscapedText(f"and {check.broken - len(check.faults):,} more", "bold"))
    return table


def _violation(violation: RuleViolation) -> list[object]:
    return [
        None if violation.seq is None else f"seq {violation.seq}",
        violation.source_epoch,
        violation.commit_lsn,
        violation.commit_idx,
        violation.table,
        EscapedText(violation.wrong, "bold red"),
        violation.expected,
    ]
