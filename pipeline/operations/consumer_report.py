"""What people read of consumers: where each stands, its settings, its dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.consumers.standing import Standing
from pipeline.operations import words

_STYLES = {"active": "green", "paused": "yellow"}
_MOST = 100_000
"""Counts stop there."""


def standing(found: Sequence[Standing]) -> Table:
    """For `status` and `list`: a line each."""
    table = words.table(
        "consumer", "kind", "state", "pending", "in flight", "dead", "oldest", "position", "lag", "reader"
    )
    for each in found:
        table.add_row(
            each.name,
            each.kind,
            Text(each.state, _STYLES.get(each.state, "")),
            _count(each.pending),
            _count(each.in_flight),
            Text(_count(each.dead), "bold red" if each.dead else ""),
            "-" if each.oldest_pending_seconds is None else words.ago(each.oldest_pending_seconds),
            str(each.position),
            words.count(each.lag, "seq"),
            each.reader or "-",
        )
    return table


def consumers(found: Sequence[Standing]) -> None:
    """All of them."""
    console = words.console()
    if not found:
        console.print("there are no consumers; `pipeline consumers create NAME` makes one")
        return
    console.print(standing(found))


def consumer(found: Standing) -> None:
    """One with its settings."""
    console = words.console()
    console.print(standing([found]))
    table = words.table("", "")
    for label, value in (
        ("tables", ", ".join(found.tables) or "all"),
        ("actions", ", ".join(found.actions) or "all"),
        ("group by", ", ".join(found.group_by or ()) or "the key"),
        ("visibility", f"{found.visibility:g} s"),
        ("max deliveries", words.whole(found.max_deliveries)),
        ("max unacknowledged", words.whole(found.max_unacknowledged)),
        ("created", found.created_at.isoformat(" ", "seconds")),
    ):
        table.add_row(Text(label, "dim"), value)
    console.print()
    console.print(table)


def dead_letters(name: str, found: Sequence[dict[str, Any]]) -> None:
    """Which they are; what is in them is for --json."""
    console = words.console()
    if not found:
        console.print(f"{name} has no dead letters")
        return
    table = words.table("seq", "table", "key", "action", "deliveries", "committed")
    for letter in found:
        table.add_row(
            str(letter["seq"]),
            f"{letter['source_table_schema']}.{letter['source_table_name']}",
            letter["record_pk"],
            letter["action"],
            str(letter["deliveries"]),
            letter["committed_at"].isoformat(" ", "seconds"),
        )
    console.print(table)


def _count(number: int | None) -> str:
    if number is None:
        return "-"
    return f"{_MOST:,} or more" if number >= _MOST else f"{number:,}"
