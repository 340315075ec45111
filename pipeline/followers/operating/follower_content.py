"""Prints the progress and the result of `followers verify`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.table import Table

from pipeline.followers.operating.verify import FollowerVerification, VerifiedTable
from pipeline.printable import say
from pipeline.terminal import bars, drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wal import lsn

_LEVELS = {"equal": "ok", "differs": "error", "refused": "warning"}
_STATES = {"equal": "equal", "differs": "differs", "refused": "not compared"}


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int], None]]:
    """Show the progress on a terminal, one line elsewhere. Standard output stays for the result."""
    with bars.beside_output() as bar:
        first = "waiting for what is committed at the source; the comparison follows"
        task = bar.add_task(first, total=None)
        if bar.disable:
            say(first, file=sys.stderr)

        def show(table: str, rows: int) -> None:
            bar.update(task, description=f"{table}: {drawing.count(rows, 'row')}")

        yield show


def show_verified(found: FollowerVerification) -> None:
    """Print a line for each table, then the rows that differ, then the verdict."""
    drawing.show(
        drawing.table(("", "table", "rows", ""), map(_line, found.tables)),
        *(_differing(table) for table in found.tables if table.differences),
        *_verdict(found),
    )


def _line(table: VerifiedTable) -> tuple[object, ...]:
    return (
        EscapedText(_STATES[table.state], drawing.LEVEL_STYLES[_LEVELS[table.state]]),
        table.table,
        None if table.state == "refused" else f"{table.rows:,}",
        drawing.dim(table.reason or "; ".join(_notes(table))),
    )


def _notes(table: VerifiedTable) -> Iterator[str]:
    if table.form:
        yield table.form
    if table.altered:
        yield table.altered
    if table.differing:
        yield f"{drawing.count(table.differing, 'row')} {'differs' if table.differing == 1 else 'differ'}"
    if table.unsettled:
        yield f"{drawing.count(table.unsettled, 'row')} written all the time, so their comparison did not end"


def _differing(table: VerifiedTable) -> Table:
    rows = (
        (", ".join(each.key) if each.key else "all rows", EscapedText(each.kind, "bold red"), ", ".join(each.columns))
        for each in table.differences
    )
    shown = drawing.table((table.table, "in the follower", "columns"), rows)
    if table.differing > len(table.differences):
        shown.add_row(EscapedText(f"and {table.differing - len(table.differences):,} more", "bold"))
    return shown


def _verdict(found: FollowerVerification) -> Iterator[EscapedText]:
    compared = [table for table in found.tables if table.state != "refused"]
    if not compared:
        yield EscapedText("nothing was compared", "bold")
        return
    what = "no differences" if not found.differing else drawing.count(found.differing, "difference")
    tables = drawing.count(len(compared), "table")
    through = f"through {lsn.show(found.verified_through)}, seq {found.seq}"
    yield EscapedText(f"{drawing.count(found.rows, 'row')} of {tables}: {what}, {through}", "bold")
    if differing := [shlex.quote(table.table) for table in compared if table.differing]:
        yield EscapedText(f"made equal by `pipeline followers resync {found.follower} {' '.join(differing)}`")
