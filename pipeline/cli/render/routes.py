"""Prints the routes in force, the events tables, and when routes changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from pipeline.log.tables import KnownTable
from pipeline.operate.routes import RoutesVersion, RoutingReport
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText


def show_routing(now: RoutingReport) -> None:
    """Print the routes in force, the events tables, and the earlier routes."""
    if now.in_force is None:
        drawing.show("nothing has been replicated yet; the routes apply when the server first starts")
        return
    others = "the routes in your settings differ from these; they apply when the server next starts"
    drawing.show(
        drawing.table(("", "tables", "actions", "events table"), _in_force(now.in_force)),
        summary(now.tables),
        drawing.table(("since", "epoch", "after", "routes", "default", "first seqs"), map(_change, now.history)),
        EscapedText(others, "yellow") if now.pending else None,
    )


def summary(found: Sequence[KnownTable]) -> Table:
    """Return a table of the events tables, for `status` too."""
    return drawing.table(
        ("events table", "newest seq", "events", "written"),
        ((each.name, drawing.whole(each.last_seq), f"{each.events:,}", _written(each)) for each in found),
    )


def _written(table: KnownTable) -> EscapedText:
    if not table.present:
        return EscapedText("no longer exists", "bold red")
    if table.last_seq is None or table.updated_at is None:
        return drawing.dim("never")
    return drawing.dim(f"{drawing.since(table.updated_at)} ago")


def _in_force(held: RoutesVersion) -> Iterator[tuple[object, ...]]:
    for number, route in enumerate(held.routes, 1):
        yield drawing.dim(f"route {number}"), _all(route["tables"]), _all(route["actions"]), route["events_table"]
    yield drawing.dim("default"), "all others" if held.routes else "all", "", held.events_table


def _change(held: RoutesVersion) -> list[object]:
    first = ", ".join(f"{name} {seq}" for name, seq in sorted(held.first_seqs.items()))
    return [
        held.since,
        held.epoch,
        drawing.position(held.after_lsn),
        drawing.count(len(held.routes), "route"),
        held.events_table,
        drawing.dim(first),
    ]


def _all(patterns: Any) -> str:
    return ", ".join(patterns) or "all"
