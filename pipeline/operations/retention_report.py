"""What people read of retention: what is kept, what would go, what holds it back."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline import durations
from pipeline.operations import words
from pipeline.operations.retention import Outcome, Retention


def standing(now: Retention) -> Table:
    """For `status`, and for a dry run."""
    table = words.table("", "", "")
    setting = "events stay for ever" if now.keep == durations.NONE else f"older than {now.keep} goes"
    below = f"everything below seq {now.dropped_below} was dropped" if now.dropped_at else "nothing was dropped yet"
    table.add_row(Text("retention", "dim"), setting, Text(below, "dim"))
    if now.first_seq is not None and now.oldest_at is not None:
        age = words.ago((datetime.now(UTC) - now.oldest_at).total_seconds())
        table.add_row(
            Text("kept", "dim"), f"from seq {now.first_seq}", Text(f"{age} old, {words.size(now.bytes)}", "dim")
        )
    for holder in now.held_by:
        table.add_row(Text("held back", "yellow"), "by", Text(str(holder)))
    for other in now.beside:
        kept = "nothing" if other.first_seq is None else f"from seq {other.first_seq}"
        table.add_row(Text("kept", "dim"), kept, Text(f"{other.events_table}, {words.size(other.bytes)}", "dim"))
        for holder in other.held_by:
            table.add_row(Text("held back", "yellow"), other.events_table, Text(str(holder)))
    return table


def dry_run(now: Retention) -> None:
    """What would go, what holds it back, and when more is old enough."""
    console = words.console()
    console.print(standing(now))
    console.print()
    for each in (now, *now.beside):
        _would_go(console, each, f" of {each.events_table}" if now.beside else "")
    if not any(each.droppable or each.trim_from is not None for each in (now, *now.beside)):
        console.print("nothing would go now")
    if now.due:
        console.print(f"the next is old enough at {now.due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


def _would_go(console: Console, now: Retention, of: str) -> None:
    if now.droppable:
        console.print(f"would drop {words.count(len(now.droppable), 'partition')}{of}: {', '.join(now.droppable)}")
    if now.trim_from is not None:
        console.print(f"would delete events{of} older than {now.keep} row by row, from seq {now.trim_from} on")


def outcome(found: Outcome, now: Retention) -> None:
    """What a run has dropped, and how it stands."""
    console = words.console()
    dropped = f"{words.count(found.partitions, 'partition')}, {words.count(found.rows, 'row')} of others dropped"
    console.print(dropped if found.partitions or found.rows else "nothing was dropped")
    console.print(standing(now))
