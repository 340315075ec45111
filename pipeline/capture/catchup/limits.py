"""How many slots may read a backlog at once: what is set, what is free at the source, its version, the host's cores."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

SAFE_MINORS = {15: 13, 16: 9, 17: 5}
"""From these on, fast-forwarding a slot cannot lose catalog rows that it needs (fixed in April 2025)."""
DEFAULT_SLOTS = 4
"""The most that are opened where PIPELINE_CATCHUP_MAX_SLOTS is not set. One core is left to what drains staging: with
two, reading by two slots took a sixth longer (docs/benchmarks.md)."""

MOST_LETTERS = 63 - len("_part_63")
"""Of a slot's name, so that those of its copies fit."""


@dataclass(frozen=True)
class Room:
    """What the source can spare. `version` is server_version_num."""

    version: int
    max_slots: int
    free_slots: int
    max_senders: int
    free_senders: int


@dataclass(frozen=True)
class Allowed:
    """So many slots in all, the anchor's among them. `held_by`: what makes them fewer than wanted, and the remedy."""

    slots: int
    held_by: str | None = None


def room(source: Connection) -> Room:
    """What the source can spare now."""
    found = queries.one(source, Room, statement("capture.catchup", "room"))
    assert found is not None  # noqa: S101  a query without a table
    return found


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed(room: Room, slot: str, setting: int | None, cores: int) -> Allowed:
    """How many slots may read at once. `setting` is PIPELINE_CATCHUP_MAX_SLOTS, obeyed also above the cores."""
    if (unfit := unsafe(room.version) or _too_long(slot)) is not None:
        return Allowed(1, unfit)
    if (most := wanted(setting, cores)) == 1:
        return Allowed(1, _one(setting, cores))
    free = [
        (room.free_slots, "max_replication_slots", room.max_slots),
        (room.free_senders, "max_wal_senders", room.max_senders),
    ]
    fewest, name, in_all = min(free)
    slots = 1 + max(0, min(fewest, most - 1))
    if slots == most:
        return Allowed(slots)
    return Allowed(slots, f"the source has {max(0, fewest)} of its {name} = {in_all} free; raise it at the source")


def wanted(setting: int | None, cores: int) -> int:
    """How many slots there would be if the source could spare any number."""
    return min(DEFAULT_SLOTS, max(1, cores - 1)) if setting is None else setting


def unsafe(version: int) -> str | None:
    """Why slots of this version must not be fast-forwarded; None when they may."""
    major, minor = divmod(version, 10000)
    if minor >= SAFE_MINORS.get(major, 0):
        return None
    cause = f"the source runs Postgres {major}.{minor}, which can lose catalog rows that a fast-forwarded slot needs"
    return f"{cause}; update it to {major}.{SAFE_MINORS[major]} or newer"


def beyond_cores(setting: int | None, cores: int) -> str | None:
    """What there is to say of more slots than cores: it is obeyed, and costs more than it brings."""
    if setting is None or setting <= cores:
        return None
    return f"PIPELINE_CATCHUP_MAX_SLOTS is {setting}, and this process may use {cores} cores; {cores} would do as much"


def _too_long(slot: str) -> str | None:
    if len(slot) <= MOST_LETTERS:
        return None
    return f"PIPELINE_SLOT has {len(slot)} letters, and names of its copies would be too long; {MOST_LETTERS} can be"


def _one(setting: int | None, cores: int) -> str:
    if setting == 1:
        return "PIPELINE_CATCHUP_MAX_SLOTS is 1; raise it, or set PIPELINE_CATCHUP_THRESHOLD=off"
    may = "one core" if cores == 1 else f"{cores} cores"
    return f"this process may use {may}; give it three or more, or set PIPELINE_CATCHUP_MAX_SLOTS"
