"""What people read of lag: a line each stage, then what limits and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from pipeline.operations import words
from pipeline.operations.lag import Lag, Limit
from pipeline.wal import lsn


def explained(found: Lag) -> Iterator[Table]:
    """For `status`."""
    if found.stages:
        yield _stages(found)
    yield _limits(found)


def _stages(found: Lag) -> Table:
    table = words.table("lag", "position", "behind the source", "", "of it here", "")
    table.add_row("written", _position(found.written_lsn), "", "", "", "")
    for stage in found.stages:
        table.add_row(
            stage.stage + (f" by {stage.reader}" if stage.reader and stage.stage == "consumed" else ""),
            _position(stage.lsn),
            *_amount(stage.behind_bytes, stage.behind_seconds),
            *_amount(stage.own_bytes, stage.own_seconds),
        )
    return table


def _amount(size: int, seconds: float | None) -> tuple[str, str]:
    if not size and not seconds:
        return "-", ""
    return words.size(size), "?" if seconds is None else words.lasted(seconds)


def _limits(found: Lag) -> Table:
    table = words.table("", "")
    for place, limit in enumerate(found.limits):
        table.add_row(Text("also" if place else "limited by", "dim"), _text(limit))
    return table


def _text(limit: Limit) -> Text:
    text = Text(limit.text, "green" if limit.part == "nothing" else "yellow")
    if limit.remedy:
        text.append(f"\n→ {limit.remedy}", "")
    return text


def _position(position: int | None) -> str:
    return "-" if position is None else lsn.show(position)
