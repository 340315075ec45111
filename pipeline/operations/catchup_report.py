"""What people read of a catch-up: the parts of the backlog, who reads them and how far they are."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pipeline.catchup.plan import Part
from pipeline.operations import words
from pipeline.operations.slot_lags import SlotLag
from pipeline.replication import slot
from pipeline.wal import lsn


def standing(anchor: str, parts: Sequence[Part], slots: Sequence[SlotLag]) -> Table:
    """For `status`: one line a part, in the order of the WAL."""
    lags = {slot.name: slot for slot in slots}
    table = words.table("catching up by", "from", "until", "staged", "left", "slot is behind", "")
    for part in parts:
        name = slot.part_name(anchor, part.worker) if part.worker else anchor
        lag = lags.get(name)
        until = "whatever comes" if part.until_lsn is None else lsn.show(part.until_lsn)
        table.add_row(
            name,
            lsn.show(part.from_lsn),
            until,
            lsn.show(part.position),
            words.size(part.left_bytes),
            words.size(lag.lag_bytes if lag else None),
            Text(_state(part, lag), "dim"),
        )
    return table


def _state(part: Part, lag: SlotLag | None) -> str:
    if part.complete:
        return "all staged" if part.reached else "all staged, waits for those before it"
    if lag is None or not lag.active:
        return "nobody reads it now"
    return "next in order" if part.reached else "reads ahead"
