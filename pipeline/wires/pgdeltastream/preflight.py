"""The preflight checks for sessions of other systems' clients: room for them, and limits that end them early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pipeline.capture.catchup.limits import capacity_for_parts
from pipeline.capture.source import slots, synchronous_standbys
from pipeline.config import wires
from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.terminal import drawing
from pipeline.wires.pgdeltastream import status
from pipeline.wires.pgdeltastream.sessions.store import NAME_PREFIX, StoredSession

NAME, OPEN = "sessions", "open_wires"
LEFT_FREE = 1
"""Slots and walsenders that sessions never take: a worker that reconnects needs them."""


@dataclass(frozen=True)
class _Limits:
    """Limits of the source for slots: the WAL that one may hold back, and how long one may be idle; None: no limit."""

    synchronous_names: str
    wal_bytes: int | None
    idle_after: timedelta | None


def run(config: Config, source: Connection, known: Mapping[str, StoredSession]) -> CheckFindings:
    """Check the limits of the source; nothing if no wire with slots is served. `known`: sessions by slot.

    Yields no finding of level error, because the server works without sessions.
    """
    if not wires.with_slots(config.wires):
        return
    yield _room(config, source, known)
    limits = queries.one(source, _Limits, statement("wires.pgdeltastream", "session_limits"))
    assert limits is not None  # noqa: S101  a query without a table
    if synchronous_standbys.can_choose(limits.synchronous_names, NAME_PREFIX):
        text = f"synchronous_standby_names = '{limits.synchronous_names}' can choose a session's walsender"
        text += ": users' commits would wait for a client, so no session is made"
        yield CheckFinding("warning", NAME, text, "list the standbys by name there")
    if limits.wal_bytes is not None and limits.wal_bytes < config.sessions_wal_bytes:
        text = f"PIPELINE_SESSIONS_WAL is {drawing.size(config.sessions_wal_bytes)}, but the source takes its WAL"
        text += f" from a slot that holds back {drawing.size(limits.wal_bytes)} (max_slot_wal_keep_size)"
        yield CheckFinding("warning", NAME, text, "set PIPELINE_SESSIONS_WAL below that")
    if limits.idle_after is not None and (seconds := limits.idle_after.total_seconds()) < config.sessions_idle_seconds:
        text = f"PIPELINE_SESSIONS_IDLE is {drawing.ago(config.sessions_idle_seconds)}, but the source takes its WAL"
        text += f" from a slot that is unread for {drawing.ago(seconds)}"
        yield CheckFinding("warning", NAME, text, "raise idle_replication_slot_timeout at the source")


def _room(config: Config, source: Connection, known: Mapping[str, StoredSession]) -> CheckFinding:
    """Check for how many sessions the source has slots and walsenders.

    Those that sessions have now count as free. The same applies to those of a catch-up, which ends.
    """
    free = capacity_for_parts(source, config.slot)
    at = status.read_source(source, list(known.values()), slots.all_slots(source))
    connected = len(at.exporting | {name for name, slot in at.slots.items() if slot.active_pid is not None})
    found = [
        (free.free_slots + len(at.slots), "max_replication_slots", free.max_slots),
        (free.free_senders + connected, "max_wal_senders", free.max_senders),
    ]
    fewest, name, in_all = min(found)
    possible, wanted = max(0, fewest - LEFT_FREE), config.sessions_max
    if possible >= wanted:
        return CheckFinding("ok", NAME, f"there is room for {drawing.count(wanted, 'session')}")
    text = f"there is room for {possible} of {drawing.count(wanted, 'session')} (PIPELINE_SESSIONS_MAX): the source"
    text += f" has {max(0, fewest)} of its {name} = {in_all} for them, and one of these stays free for the worker"
    remedy = f"raise {name} at the source" + (f", or set PIPELINE_SESSIONS_MAX={possible}" if possible else "")
    return CheckFinding("warning", NAME, text, remedy)


def open_wires(config: Config) -> CheckFindings:
    """Warn of wires that are served without the token."""
    for name in config.open_wires:
        slots_too = name in wires.WITH_SLOTS
        port = config.grpc_port if name in wires.OVER_GRPC else config.http_port
        text = f"{name} answers without the token: any client that reaches {config.http_host}:{port} can "
        text += "make a slot at the source, and " if slots_too else "acknowledge for its clients, and "
        text += "read every published row"
        yield CheckFinding("warning", OPEN, text, "let only its clients reach it; close it when they are gone")
