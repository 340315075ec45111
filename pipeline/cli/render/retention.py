"""Prints the state of retention: which events are kept, which would be dropped, and which readers prevent that."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table

from pipeline.config import durations
from pipeline.operate.retention import RetentionOutcome, RetentionStatus
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText


def summary(now: RetentionStatus) -> Table:
    """Return the summary of retention, for `status` and for a dry run."""
    return drawing.facts(_facts(now))


def _facts(now: RetentionStatus) -> Iterator[tuple[object, object, object]]:
    setting = "events are never dropped" if now.keep == durations.NONE else f"older than {now.keep} is dropped"
    below = f"everything below seq {now.dropped_below} was dropped" if now.dropped_at else "nothing was dropped yet"
    yield "retention", setting, below
    if now.first_seq is not None and now.oldest_at is not None:
        yield (
            "kept",
            f"from seq {now.first_seq}",
            f"{drawing.since(now.oldest_at)} old, {drawing.size(now.bytes)}",
        )
    yield from _held(now, "by")
    for other in now.beside:
        kept = "nothing" if other.first_seq is None else f"from seq {other.first_seq}"
        yield "kept", kept, f"{other.events_table}, {drawing.size(other.bytes)}"
        yield from _held(other, other.events_table)


def held_back(now: RetentionStatus) -> Iterator[Table]:
    """Yield a table for `status` if events that are old enough cannot be dropped: a line for each holder."""
    rows = [*_held(now, "by"), *(row for other in now.beside for row in _held(other, other.events_table))]
    if rows:
        yield drawing.table(("", "", ""), rows)


def _held(now: RetentionStatus, by: str) -> Iterator[tuple[object, object, object]]:
    for holder in now.held_by:
        yield EscapedText("held back", "yellow"), by, EscapedText(str(holder))


def show_dry_run(now: RetentionStatus) -> None:
    """Print which events would be dropped now, which readers prevent that, and when the next events are old enough."""
    would = [
        line for each in (now, *now.beside) for line in _would_drop(each, f" of {each.events_table}" * bool(now.beside))
    ]
    due = [f"the next events are old enough at {drawing.moment(now.due)}"] if now.due else []
    drawing.show(summary(now), Group(*(would or ["nothing would be dropped now"]), *due))


def _would_drop(now: RetentionStatus, of: str) -> Iterator[str]:
    if now.droppable:
        yield f"would drop {drawing.count(len(now.droppable), 'partition')}{of}: {', '.join(now.droppable)}"
    if now.trim_from is not None:
        yield f"would delete events{of} older than {now.keep} row by row, from seq {now.trim_from} on"


def show_outcome(found: RetentionOutcome, now: RetentionStatus) -> None:
    """Print what this run of retention has dropped, then the state of retention."""
    console = drawing.console()
    rows = f"{drawing.count(found.rows, 'row')} of other partitions"
    dropped = f"{drawing.count(found.partitions, 'partition')}, {rows} dropped"
    console.print(dropped if found.partitions or found.rows else "nothing was dropped")
    console.print(summary(now))
