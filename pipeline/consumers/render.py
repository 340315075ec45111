"""Prints consumers: their status, settings and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from pipeline.consumers.status import ConsumerStatus
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

_STYLES = {"active": "green", "paused": "yellow"}
_MAX_COUNT = 100_000
"""The number at which counts stop."""


def summary_table(found: Sequence[ConsumerStatus]) -> Table:
    """Return the table for `status` and `list`, with one line for each consumer."""
    columns = ("consumer", "kind", "state", "pending", "in flight", "dead", "oldest", "position", "behind", "reader")
    if not any(each.events_table for each in found):
        return drawing.table(columns, map(_summary_line, found))
    return drawing.table((*columns, "events table"), ([*_summary_line(each), _events_table(each)] for each in found))


def has_problem(each: ConsumerStatus) -> bool:
    """True if a consumer is paused, has dead items, or reads a table to which no route sends changes."""
    return each.state != "active" or bool(each.dead) or (each.events_table is not None and not each.routed)


def _events_table(each: ConsumerStatus) -> EscapedText:
    if each.events_table is None:
        return drawing.dim("default")
    if each.routed:
        return EscapedText(each.events_table)
    return EscapedText(f"{each.events_table}: no route sends changes there", "yellow")


def _summary_line(each: ConsumerStatus) -> list[object]:
    return [
        each.name,
        each.kind,
        EscapedText(each.state, _STYLES.get(each.state, "")),
        _count(each.pending),
        _count(each.in_flight),
        EscapedText(_count(each.dead), "bold red" if each.dead else ""),
        None if each.oldest_pending_seconds is None else drawing.ago(each.oldest_pending_seconds),
        each.position if each.kind == "cursor" else None,  # records: `position` is where the consumer began
        drawing.count(each.lag, "seq"),
        each.reader or None,
    ]


def show_consumers(found: Sequence[ConsumerStatus]) -> None:
    """Print all consumers."""
    remedy = "there are no consumers; create one: `pipeline consumers create NAME`"
    drawing.show(summary_table(found) if found else remedy)


def show_consumer(found: ConsumerStatus) -> None:
    """Print one consumer with its settings."""
    settings = (
        ("events table", found.events_table or "the default one"),
        ("tables", ", ".join(found.tables) or "all"),
        ("actions", ", ".join(found.actions) or "all"),
        ("group by", ", ".join(found.group_by or ()) or "the key"),
        ("items", "each row, with its last change" if found.collapse else "each change"),
        ("visibility", f"{found.visibility:g} s"),
        ("max deliveries", drawing.whole(found.max_deliveries)),
        ("max unacknowledged", drawing.whole(found.max_unacknowledged)),
        ("created", found.created_at),
    )
    labelled = drawing.table(("", ""), ((drawing.dim(label), value) for label, value in settings))
    drawing.show(summary_table([found]), labelled)


def show_dead_letters(name: str, found: Sequence[dict[str, Any]]) -> None:
    """Print a consumer's dead letters, without their values; --json prints the values, too."""
    columns = ("seq", "table", "key", "action", "deliveries", "committed")
    rows = (
        (
            letter["seq"],
            f"{letter['source_table_schema']}.{letter['source_table_name']}",
            letter["record_pk"],
            letter["action"],
            letter["deliveries"],
            letter["committed_at"],
        )
        for letter in found
    )
    drawing.show(drawing.table(columns, rows) if found else f"{name} has no dead letters")


def _count(number: int | None) -> str:
    return f"{_MAX_COUNT:,} or more" if number is not None and number >= _MAX_COUNT else drawing.whole(number)
