"""Prints the progress and the result of `verify --content`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.table import Table

from pipeline.comparing.differences import DifferingRow, ValueDifference
from pipeline.operate.verify.verifications import ContentReport, StoredVerification, TableVerification
from pipeline.terminal import bars, drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wal import lsn

_LEVELS = {"equal": "ok", "differs": "error", "refused": "warning"}
_STATES = {"equal": "equal", "differs": "differs", "refused": "not compared"}
SHOWN_VALUE = 60
"""The most characters of a value in text output; JSON has the complete value."""


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int, int], None]]:
    """Show the progress of the comparison on a terminal. Standard output has only the result."""
    with bars.beside_output() as bar:
        task = bar.add_task("comparing", total=None)

        def show(table: str, rows: int, parts: int, parts_of_table: int) -> None:
            bar.update(
                task, description=f"{table}: {drawing.count(rows, 'row')}", total=parts_of_table, completed=parts
            )

        yield show


def show_content(found: ContentReport, *, values: bool) -> None:
    """Print a line for each table, then its rows that differ, then the verdict. `values`: also print the values."""
    drawing.show(
        drawing.table(("", "table", "rows", "through", ""), map(_line, found.tables)),
        *(_differing(table, values=values) for table in found.tables if table.differences),
        *_verdict(found),
    )


def sections(last: StoredVerification | None) -> Iterator[Table]:
    """Return the sections of `status` on the last verification; none before the first."""
    if last is None:
        return
    found = "no differences" if not last.differing else drawing.count(last.differing, "difference")
    style = "bold red" if last.differing else ""
    where = f"{drawing.count(last.rows, 'row')} of {drawing.count(last.tables_compared, 'table')}"
    through = "" if last.verified_through is None else f", through {lsn.show(last.verified_through)}"
    when = f"by {last.asked_by}, {drawing.since(last.finished_at)} ago"
    rows: list[tuple[object, ...]] = [("verified", EscapedText(found, style), f"{where}{through}", when)]
    if last.differs:
        rows.append(
            ("", "in", EscapedText(", ".join(last.differs), "bold red"), "`pipeline verify --content` names the rows")
        )
    yield drawing.table(("", "", "", ""), rows)


def _line(table: TableVerification) -> tuple[object, ...]:
    through = None if table.verified_through is None else lsn.show(table.verified_through)
    return (
        EscapedText(_STATES[table.state], drawing.LEVEL_STYLES[_LEVELS[table.state]]),
        table.table,
        None if table.state == "refused" else f"{table.rows:,}",
        through,
        drawing.dim(table.reason or "; ".join(_notes(table))),
    )


def _notes(table: TableVerification) -> Iterator[str]:
    if table.differing:
        yield f"{drawing.count(table.differing, 'row')} {'differs' if table.differing == 1 else 'differ'}"
    if table.unknown:
        yield f"{drawing.count(table.unknown, 'row')} with values that are missing in the log"


def _differing(table: TableVerification, *, values: bool) -> Table:
    columns = (table.table, "what", "event", "column", *(("source", "log") if values else ()))
    shown = drawing.table(columns, (row for each in table.differences for row in _rows(each, values=values)))
    if table.differing > len(table.differences):
        shown.add_row(EscapedText(f"and {table.differing - len(table.differences):,} more", "bold"))
    return shown


def _rows(difference: DifferingRow, *, values: bool) -> Iterator[list[object]]:
    event = None if difference.seq is None else f"seq {difference.seq}"
    head: list[object] = [
        ", ".join(text or "" for text in difference.key),
        EscapedText(difference.kind, "bold red"),
        event,
    ]
    if not difference.values:
        yield [*head, None, *((None, None) if values else ())]
    for number, value in enumerate(difference.values):
        yield [*(["", "", ""] if number else head), value.column, *(_both(value) if values else ())]


def _both(value: ValueDifference) -> tuple[object, object]:
    return _text(value.source), drawing.dim("absent") if value.absent else _text(value.log)


def _text(text: str | None) -> object:
    if text is None:
        return drawing.dim("null")
    return repr(text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]}…")


def _verdict(found: ContentReport) -> Iterator[EscapedText]:
    if not found.compared:
        yield EscapedText("nothing was compared", "bold")
        return
    what = "no differences" if not found.differing else drawing.count(found.differing, "difference")
    of = "" if found.share == 1 else f", a sample of {found.share:.0%}"
    through = lsn.show(found.verified_through or 0)
    tables = drawing.count(len(found.compared), "table")
    yield EscapedText(f"{drawing.count(found.rows, 'row')} of {tables}{of}: {what}, through {through}", "bold")
