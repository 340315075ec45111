"""What people read of lag: a line each stage, then what limits and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from pipeline.operations import words
from pipeline.operations.lag import Lag, Limit


def explained(found: Lag) -> Iterator[Table]:
    """For `status`."""
    if found.stages:
        yield words.table(("lag", "position", "behind the source", "", "of it here", ""), _stages(found))
    limits = enumerate(found.limits)
    yield words.table(
        ("", ""), ((words.dim("also" if place else "limited by"), _text(limit)) for place, limit in limits)
    )


def _stages(found: Lag) -> Iterator[tuple[str, ...]]:
    yield "written", words.position(found.written_lsn), "", "", "", ""
    for stage in found.stages:
        yield (
            stage.stage + (f" by {stage.reader}" if stage.reader and stage.stage == "consumed" else ""),
            words.position(stage.lsn),
            *_amount(stage.behind_bytes, stage.behind_seconds),
            *_amount(stage.own_bytes, stage.own_seconds),
        )


def _amount(size: int, seconds: float | None) -> tuple[str, str]:
    if not size and not seconds:
        return "-", ""
    return words.size(size), "?" if seconds is None else words.lasted(seconds)


def _text(limit: Limit) -> Text:
    text = Text(limit.text, "green" if limit.part == "nothing" else "yellow")
    return text.append(f"\n→ {limit.remedy}", "") if limit.remedy else text
