"""How far each of our slots is behind the source: the anchor, and its copies while a backlog is read in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.capture.source import slots
from pipeline.capture.source.slots import Slot
from pipeline.wal import lsn


@dataclass(frozen=True)
class SlotLag:
    """`lag_bytes`: from what the slot has confirmed to what the source has written; None for a lost slot."""

    name: str
    active: bool
    confirmed_lsn: lsn.Shown | None
    lag_bytes: int | None


def of(found: Sequence[Slot], anchor: str, written: int) -> list[SlotLag]:
    """The slots of `found` that are ours, the anchor first; `written`: the source's end of WAL."""
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
