"""How far each slot of ours is behind the source: the anchor, and its copies while a backlog is read in parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from psycopg.rows import class_row

from pipeline.db import Connection, sql
from pipeline.replication import slot as slots
from pipeline.wal import lsn


@dataclass(frozen=True)
class SlotLag:
    """`lag_bytes`: from what the slot has confirmed to what the source has written; None of a slot that is lost."""

    name: str
    active: bool
    confirmed_lsn: int | None
    lag_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """For `--json`: LSNs as Postgres prints them."""
        shown = None if self.confirmed_lsn is None else lsn.show(self.confirmed_lsn)
        return {**asdict(self), "confirmed_lsn": shown}


def read(source: Connection, anchor: str) -> list[SlotLag]:
    """Now: the anchor first."""
    with source.cursor(row_factory=class_row(SlotLag)) as cursor:
        found = cursor.execute(sql("operations", "slot_lags")).fetchall()
    return [slot for slot in found if slot.name == anchor or slots.is_part(slot.name, anchor)]
