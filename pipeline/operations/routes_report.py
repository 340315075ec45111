"""What people read of routes: which hold, the events tables, and when routes changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.events.tables import KnownTable
from pipeline.operations import words
from pipeline.operations.routes import Held, Routing


def routing(now: Routing) -> None:
    """What holds, what is in the tables, what held before."""
    if now.in_force is None:
        words.show("nothing was moved yet: routes hold from the first start on")
        return
    others = "the settings of this call are others: they hold from the next start on"
    words.show(
        words.table(("", "tables", "actions", "events table"), _in_force(now.in_force)),
        standing(now.tables),
        words.table(("since", "epoch", "after", "routes", "default", "first seqs"), map(_change, now.history)),
        Text(others, "yellow") if now.pending else None,
    )


def standing(found: Sequence[KnownTable]) -> Table:
    """Every events table, for `status` too."""
    return words.table(
        ("events table", "newest seq", "events", "written"),
        ((each.name, words.whole(each.last_seq), f"{each.events:,}", _written(each)) for each in found),
    )


def _written(table: KnownTable) -> Text:
    if not table.present:
        return Text("is no longer there", "bold red")
    if table.last_seq is None or table.updated_at is None:
        return words.dim("never")
    return words.dim(f"{words.since(table.updated_at)} ago")


def _in_force(held: Held) -> Iterator[tuple[object, ...]]:
    for number, route in enumerate(held.routes, 1):
        yield words.dim(f"route {number}"), _all(route["tables"]), _all(route["actions"]), route["events_table"]
    yield words.dim("default"), "all others" if held.routes else "all", "", held.events_table


def _change(held: Held) -> list[object]:
    first = ", ".join(f"{name} {seq}" for name, seq in sorted(held.first_seqs.items()))
    return [
        held.since,
        held.epoch,
        words.position(held.after_lsn),
        words.count(len(held.routes), "route"),
        held.events_table,
        words.dim(first),
    ]


def _all(patterns: Any) -> str:
    return ", ".join(patterns) or "all"
