"""What people read of routes: which hold, the events tables, and when routes changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.events.tables import KnownTable
from pipeline.operations import words
from pipeline.operations.routes import Held, Routing
from pipeline.wal import lsn


def routing(now: Routing) -> None:
    """What holds, what is in the tables, what held before."""
    console = words.console()
    if not now.history:
        console.print("nothing was moved yet: routes hold from the first start on")
        return
    console.print(_in_force(now.history[0]))
    console.print()
    console.print(standing(now.tables))
    console.print()
    console.print(_history(now.history))
    if now.pending:
        console.print()
        console.print(Text("the settings of this call are others: they hold from the next start on", "yellow"))


def standing(found: Sequence[KnownTable]) -> Table:
    """Every events table, for `status` too."""
    table = words.table("events table", "newest seq", "events", "written")
    for each in found:
        when = Text("never" if each.last_seq is None or each.updated_at is None else _ago(each.updated_at), "dim")
        gone = Text("is no longer there", "bold red")
        table.add_row(each.name, words.whole(each.last_seq), f"{each.events:,}", when if each.present else gone)
    return table


def _in_force(held: Held) -> Table:
    table = words.table("", "tables", "actions", "events table")
    for number, route in enumerate(held.routes, 1):
        table.add_row(
            Text(f"route {number}", "dim"), _all(route["tables"]), _all(route["actions"]), route["events_table"]
        )
    table.add_row(Text("default", "dim"), "all others" if held.routes else "all", "", held.events_table)
    return table


def _history(found: Sequence[Held]) -> Table:
    table = words.table("since", "epoch", "after", "routes", "default", "first seqs")
    for held in found:
        first = ", ".join(f"{name} {seq}" for name, seq in sorted(held.first_seqs.items()))
        since = held.since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        routes = words.count(len(held.routes), "route")
        table.add_row(since, str(held.epoch), lsn.show(held.after_lsn), routes, held.events_table, Text(first, "dim"))
    return table


def _all(patterns: Any) -> str:
    return ", ".join(patterns) or "all"


def _ago(when: datetime) -> str:
    return f"{words.ago((datetime.now(UTC) - when).total_seconds())} ago"
