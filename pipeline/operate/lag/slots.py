"""How far each slot of ours is behind the source: the anchor, and its copies while a backlog is read in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.capture.source import slot as slots
from pipeline.capture.source.slot import Slot
from pipeline.wal import lsn


@dataclass(frozen=True)
class SlotLag:
    """`lag_bytes`: from what the slot has confirmed to what the source has written; None of a slot that is lost."""

    name: str
    active: bool
    confirmed_lsn: lsn.Shown | None
    lag_bytes: int | None


def of(found: Sequence[Slot], anchor: str, written: int) -> list[SlotLag]:
    """Those of `found` that are ours, the anchor first; `written` is how far the source has written."""
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
