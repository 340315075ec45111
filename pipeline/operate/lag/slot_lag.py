"""Measure how far each of our slots is behind the source: the anchor, and its copies that read parts of a backlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.capture.source import slots
from pipeline.capture.source.slots import Slot
from pipeline.wal import lsn


@dataclass(frozen=True)
class SlotLag:
    """The lag of a slot. `lag_bytes`: WAL between the confirmed LSN and the source's end of WAL; None if it is lost."""

    name: str
    active: bool
    confirmed_lsn: lsn.Shown | None
    lag_bytes: int | None


def measure_lags(found: Sequence[Slot], anchor: str, written: int) -> list[SlotLag]:
    """Our slots among `found`, the anchor first; `written`: the source's end of WAL."""
    return [
        SlotLag(
            slot.name,
            slot.active_pid is not None,
            slot.confirmed_lsn,
            None if slot.confirmed_lsn is None else written - slot.confirmed_lsn,
        )
        for slot in found
        if slot.name == anchor or slots.is_part(slot.name, anchor)
    ]
