"""Prints the lag: one line for each stage, then what limits it and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from pipeline.operate.lag.model import Lag, Limit
from pipeline.terminal import drawing
from pipeline.terminal.drawing import Text

_BY_NAME = ("consumed", "followed")
"""Stages of which the reader that lags most is named."""


def tables(found: Lag) -> Iterator[Table]:
    """For `status`: the stages, then the limits."""
    if found.stages:
        yield drawing.table(("stage", "position", "behind", "lag", "behind here", "lag here"), _stages(found))
    limits = enumerate(found.limits)
    yield drawing.table(
        ("", ""), ((drawing.dim("also" if place else "limited by"), _text(limit)) for place, limit in limits)
    )


def _stages(found: Lag) -> Iterator[tuple[str, ...]]:
    yield "written", drawing.position(found.written_lsn), "", "", "", ""
    for stage in found.stages:
        yield (
            stage.stage + (f" by {stage.reader}" if stage.reader and stage.stage in _BY_NAME else ""),
            drawing.position(stage.lsn),
            *_amount(stage.behind_bytes, stage.behind_seconds),
            *_amount(stage.own_bytes, stage.own_seconds),
        )


def _amount(size: int, seconds: float | None) -> tuple[str, str]:
    if not size and not seconds:
        return "-", ""
    return drawing.size(size), "?" if seconds is None else drawing.lasted(seconds)


def _text(limit: Limit) -> Text:
    text = Text(limit.text, "green" if limit.part == "nothing" else "yellow")
    return text.line(f"→ {limit.remedy}") if limit.remedy else text
