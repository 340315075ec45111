"""Limits how many slots read a backlog at once, by the setting, the source's version and free slots, and the cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.capture.source import slots
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

SAFE_MINORS = {15: 13, 16: 9, 17: 5}
"""From these minor versions on, advancing a slot cannot lose catalog rows that it needs (fixed in April 2025)."""
DEFAULT_SLOTS = 4
"""The most slots when PIPELINE_CATCHUP_MAX_SLOTS is not set. One core is left to the shuffler: on two cores, reading
with two slots took a sixth longer (docs/internals/benchmarks.md)."""

MOST_LETTERS = 63 - len("_part_63")
"""The most letters in a slot's name: the copies of a longer one would have no valid names."""


@dataclass(frozen=True)
class SourceCapacity:
    """The slots and walsenders that the source has free. `version` is server_version_num.

    `kept_senders`: unused walsenders that do not count as free, because clients' sessions will need them.
    """

    version: int
    max_slots: int
    free_slots: int
    max_senders: int
    free_senders: int
    kept_senders: int = 0


@dataclass(frozen=True)
class SlotLimit:
    """The most slots in total, with the anchor. `held_by`: why there are fewer than wanted, and the remedy."""

    slots: int
    held_by: str | None = None


def read_capacity(source: Connection, sessions: Sequence[str] = ()) -> SourceCapacity:
    """Read what the source has free; for each slot of `sessions` without a reader, one walsender is reserved.

    A session keeps its slot, and its client may connect again at any time.
    """
    found = queries.one(
        source, SourceCapacity, statement("capture.catchup", "source_capacity"), {"sessions": list(sessions)}
    )
    assert found is not None  # noqa: S101  a query without a table
    return found


def capacity_for_parts(source: Connection, anchor: str, sessions: Sequence[str] = ()) -> SourceCapacity:
    """Return what is free once the anchor has its slot and walsender, running or not.

    Slots and walsenders of the anchor's parts count as free.
    """
    found, parts, slot = read_capacity(source, sessions), slots.find_parts(source, anchor), slots.find(source, anchor)
    read = sum(part.active_pid is not None for part in parts)
    return replace(
        found,
        free_slots=found.free_slots + len(parts) - (slot is None),
        free_senders=found.free_senders + read - (slot is None or slot.active_pid is None),
    )


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_slots(room: SourceCapacity, slot: str, setting: int | None, cores: int) -> SlotLimit:
    """Return how many slots may read at once. `setting` is PIPELINE_CATCHUP_MAX_SLOTS, which may exceed the cores."""
    if (unfit := why_unsafe(room.version) or _too_long(slot)) is not None:
        return SlotLimit(1, unfit)
    if (most := wanted_slots(setting, cores)) == 1:
        return SlotLimit(1, _one(setting, cores))
    free = [
        (room.free_slots, "max_replication_slots", room.max_slots),
        (room.free_senders, "max_wal_senders", room.max_senders),
    ]
    fewest, name, in_all = min(free)
    possible = 1 + max(0, min(fewest, most - 1))
    if possible == most:
        return SlotLimit(possible)
    kept = f", besides {room.kept_senders} for sessions" if name == "max_wal_senders" and room.kept_senders else ""
    return SlotLimit(
        possible, f"the source has {max(0, fewest)} of its {name} = {in_all} free{kept}; raise it at the source"
    )


def wanted_slots(setting: int | None, cores: int) -> int:
    """Return how many slots would read if the source had no limits."""
    return min(DEFAULT_SLOTS, max(1, cores - 1)) if setting is None else setting


def why_unsafe(version: int) -> str | None:
    """Return why slots of this version must not be advanced; None if they may."""
    major, minor = divmod(version, 10000)
    if minor >= SAFE_MINORS.get(major, 0):
        return None
    cause = f"the source runs Postgres {major}.{minor}, which can lose catalog rows that an advanced slot needs"
    return f"{cause}; update it to {major}.{SAFE_MINORS[major]} or newer"


def warn_beyond_cores(setting: int | None, cores: int) -> str | None:
    """Return a warning if more slots than cores are set: the setting is used, but brings nothing."""
    if setting is None or setting <= cores:
        return None
    return f"PIPELINE_CATCHUP_MAX_SLOTS is {setting}, and this process may use {cores} cores; {cores} slots are as fast"


def _too_long(slot: str) -> str | None:
    if len(slot) <= MOST_LETTERS:
        return None
    return f"PIPELINE_SLOT has {len(slot)} letters, too many for names of its copies; use at most {MOST_LETTERS}"


def _one(setting: int | None, cores: int) -> str:
    if setting == 1:
        return "PIPELINE_CATCHUP_MAX_SLOTS is 1; raise it, or set PIPELINE_CATCHUP_THRESHOLD=off"
    may = "one core" if cores == 1 else f"{cores} cores"
    return f"this process may use {may}; give it three or more, or set PIPELINE_CATCHUP_MAX_SLOTS"
