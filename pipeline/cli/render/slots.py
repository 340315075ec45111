"""Prints the replication slots of the source: the owner of each, its reader, and the WAL that it holds back."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.capture.source.slots import Slot
from pipeline.operate.slot_owners import OwnedSlot, Owner
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

_OWNER_TEXTS: dict[Owner, str] = {
    "ours": "ours",
    "part": "ours, for a part of a backlog",
    "other": "another program's",
}


def show(found: Sequence[Slot], none: str) -> None:
    """Print a line for each slot, or the text `none` if the list is empty."""
    columns = ("slot", "whose", "database", "plugin", "read by", "confirmed", "holds back", "WAL")
    drawing.show(drawing.table(columns, map(_line, found)) if found else none)


def _line(slot: Slot) -> list[object]:
    reader = "nothing" if slot.active_pid is None else f"{slot.holder or 'a program'} (pid {slot.active_pid})"
    return [
        slot.name,
        _whose(slot) if isinstance(slot, OwnedSlot) else "ours, left over",
        slot.database,
        slot.plugin + (", two-phase" if slot.two_phase else "") + (", temporary" if slot.temporary else ""),
        reader,
        drawing.position(slot.confirmed_lsn),
        drawing.size(slot.retained_bytes),
        EscapedText(slot.wal_status or "-", "bold red" if slot.wal_status == "lost" else ""),
    ]


def _whose(slot: OwnedSlot) -> str | None:
    if slot.whose is None:
        return None
    return _OWNER_TEXTS.get(slot.whose) or f"a session of {slot.wire}"
