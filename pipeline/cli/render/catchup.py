"""Prints a catch-up: the parts of the backlog, which slot reads each, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pipeline.capture.catchup.plan import Part
from pipeline.capture.source import slots
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.terminal import drawing


def summary(anchor: str, parts: Sequence[Part], lags: Sequence[SlotLag]) -> Table:
    """For `status`: one line for each part, in the order of the WAL."""
    by_name = {lag.name: lag for lag in lags}
    columns = ("catching up by", "from", "until", "staged", "left", "slot is behind", "")
    names = [slots.part_name(anchor, part.worker) if part.worker else anchor for part in parts]
    return drawing.table(
        columns, (_line(name, part, by_name.get(name)) for name, part in zip(names, parts, strict=True))
    )


def _line(name: str, part: Part, lag: SlotLag | None) -> list[object]:
    return [
        name,
        drawing.position(part.from_lsn),
        "no end" if part.until_lsn is None else drawing.position(part.until_lsn),
        drawing.position(part.position),
        drawing.size(part.left_bytes),
        drawing.size(lag.lag_bytes if lag else None),
        drawing.dim(_state(part, lag)),
    ]


def _state(part: Part, lag: SlotLag | None) -> str:
    if part.complete:
        return "all staged" if part.reached else "all staged, waits for parts before it"
    if lag is None or not lag.active:
        return "nothing reads it now"
    return "next in order" if part.reached else "reads ahead"
