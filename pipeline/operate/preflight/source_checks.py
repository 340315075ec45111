"""The preflight's part on the source: can it be replicated from, and what of it will not be captured."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pipeline.capture.catchup import limits
from pipeline.capture.replication import prepare
from pipeline.capture.replication.stream import NAME_PREFIX, ReplicationStream, application_name
from pipeline.capture.source import slot_mark, slots, synchronous_standbys
from pipeline.capture.source.sources import Source
from pipeline.config.settings import Config
from pipeline.findings import Cure, Finding, Findings, guarded
from pipeline.operate import slot_owners
from pipeline.operate.preflight import catchup, providers, source_roles, table_checks
from pipeline.postgres import queries, waits
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.snapshots import preflight as snapshots
from pipeline.wal import lsn
from pipeline.wires.pgdeltastream import preflight
from pipeline.wires.pgdeltastream.sessions.store import Session

_OF_PRIMARY = {"replication", "history", "slot", "limits", catchup.NAME, preflight.NAME}
"""Parts that say nothing at a standby: its primary has other slots and positions, but the same tables and roles."""


@dataclass(frozen=True)
class _Settings:
    slot_keeps: str
    slot_timeout: str | None
    synchronous_names: str


def run(config: Config, dsn: str, source: Connection, pipeline: Connection | None, stored: Source | None) -> Findings:
    """All findings on the source at `dsn`. `pipeline` is None when it does not answer.

    `stored`: what the pipeline database knows of the source; None before the first start.
    """
    known = _sessions(source, pipeline, stored)
    parts: dict[str, Callable[[], Iterable[Finding]]] = {
        "replication": lambda: _replicates(dsn, stored),
        "history": lambda: _history(config, source, pipeline, stored),
        "slot": lambda: _slot(config, source, pipeline, stored),
        "limits": lambda: _limits(config, source),
        catchup.NAME: lambda: catchup.run(config, source, list(known)),
        preflight.NAME: lambda: preflight.run(config, source, known),
        "tables": lambda: table_checks.run(config, source, pipeline, stored),
        snapshots.NAME: lambda: snapshots.run(config, source, pipeline, stored),
        source_roles.NAME: lambda: source_roles.run(config, source, pipeline),
    }
    found = list(guarded("source", lambda: _settings(source)))
    yield from found
    wrong = {finding.name: finding.waits for finding in found if finding.level == "error"}
    if wrong.get("source"):  # it cannot be asked
        return
    left_out = _OF_PRIMARY if "source" in wrong else {"replication"} if "replication right" in wrong else set()
    for name, look in parts.items():
        if name not in left_out:
            yield from guarded(name, look)


def of_slot(config: Config, source: Connection, pipeline: Connection, stored: Source | None) -> Findings:
    """What the one slot needs: settings and rights, and, before the first start, room for it."""
    yield from guarded("source", lambda: _settings(source))
    if stored is None:
        yield from guarded("slot", lambda: _slot(config, source, pipeline, stored))
        yield from guarded("limits", lambda: _limits(config, source))


def _sessions(source: Connection, pipeline: Connection | None, stored: Source | None) -> Mapping[str, Session]:
    """Sessions of clients by slot; none where the pipeline database does not answer, which is a finding of its own."""
    if pipeline is None or stored is None:
        return {}
    return slot_owners.sessions(source, pipeline, stored.id, slots.all_slots(source))


def _settings(source: Connection) -> Findings:
    _, wal_level, may_replicate, user, standby = prepare.settings(source)
    if provider := providers.at(source).name:
        yield Finding("ok", "provider", f"{provider}, as its roles tell; docs/providers.md says what differs there")
    if standby:
        yield Finding("error", "source", "is a standby", "set PIPELINE_SOURCE_DSN to its primary")
    if wal_level == "logical":
        yield Finding("ok", "wal_level", "logical")
    else:
        text = f"wal_level = {wal_level}, but decoding needs logical"
        yield Finding("error", "wal_level", text, providers.at(source).logical)
    if may_replicate:
        yield Finding("ok", "replication right", f'user "{user}" may replicate')
    else:
        text = f'user "{user}" may not replicate'
        remedy = providers.at(source).granting(user)
        yield Finding("error", "replication right", text, remedy, cure=Cure("source", (remedy,)))


def _history(config: Config, source: Connection, pipeline: Connection | None, stored: Source | None) -> Findings:
    """Whether our stored positions can be continued at this source; `_slot` checks that for the slot."""
    if stored is None or pipeline is None:
        return
    for name, check in prepare.checks(config, source, pipeline, stored).items():
        if name not in ("slot", "mark"):
            yield from guarded(name, partial(_only_errors, check))


def _only_errors(check: Callable[[], None]) -> Findings:
    check()
    yield from ()


def _replicates(dsn: str, stored: Source | None) -> Findings:
    stream = ReplicationStream(dsn, application_name(stored.id if stored else uuid.uuid4()))
    try:
        identity = stream.identify()
    finally:
        stream.close()
    yield Finding("ok", "replication", f"cluster {identity.system_identifier} accepts a replication connection")


def _slot(config: Config, source: Connection, pipeline: Connection | None, stored: Source | None) -> Findings:
    source_id = stored.id if stored else None
    own = slot_mark.own(pipeline) if pipeline is not None else None
    slot = slots.find_ours(source, config.slot, source_id, own)
    if pipeline is not None:
        prepare.require_slot(config, source, pipeline, source_id)
        slot_mark.require_own(source, pipeline, config.slot)
    if slot is None:
        yield _new_slot(config, source)
        return
    reader = f"read by our worker (pid {slot.active_pid})" if slot.active_pid else "free"
    yield Finding("ok", "slot", f'"{slot.name}" is {reader}, confirmed up to {lsn.show(slot.confirmed_lsn or 0)}')


def _new_slot(config: Config, source: Connection) -> Finding:
    """The finding on a slot that does not exist, or that our server creates just now, which may have to wait."""
    slot = slots.find(source, config.slot)
    if slot is None or slot.active_pid is None:
        return Finding("ok", "slot", f'"{config.slot}" will be created')
    found = waits.look(source, [slot.active_pid])
    why = f", which {waits.describe(found)}" if found else ""
    text = f'"{slot.name}" is being created (pid {slot.active_pid}){why}'
    return Finding("warning" if found else "ok", "slot", text, "let that transaction end" if found else "", waits=True)


def _limits(config: Config, source: Connection) -> Findings:
    settings = queries.one(source, _Settings, statement("operate.preflight", "source_limits"))
    assert settings is not None  # noqa: S101  a query without a table
    room = limits.room(source)
    slot = slots.find(source, config.slot)
    running = slot is not None and slot.active_pid is not None
    yield _free("max_replication_slots", room.free_slots, room.max_slots, slot is not None)
    yield replace(_free("max_wal_senders", room.free_senders, room.max_senders, running), waits=True)
    if settings.slot_keeps != "-1":
        text = f"a slot that holds back more than {settings.slot_keeps} of WAL is invalidated, and its changes are lost"
        yield Finding(
            "warning",
            "max_slot_wal_keep_size",
            text,
            "watch what the slot holds back, or set -1 to keep all needed WAL",
        )
    if settings.slot_timeout:
        text = f"a slot that is not read for {settings.slot_timeout} is invalidated, and its changes are lost"
        remedy = "never stop the server for that long, or set idle_replication_slot_timeout = 0"
        yield Finding("warning", "idle_replication_slot_timeout", text, remedy)
    if synchronous_standbys.can_choose(settings.synchronous_names, NAME_PREFIX):
        text = f"synchronous_standby_names = '{settings.synchronous_names}' makes users' commits wait for this server"
        remedy = "list the standbys by name there, or run `pipeline check --accept synchronous_standby_names`"
        yield Finding("error", "synchronous_standby_names", text, remedy)


def _free(name: str, free: int, most: int, ours_counts: bool) -> Finding:
    if ours_counts or free > 0:
        return Finding(
            "ok", name, f"{free} of {most} are free" + (", one of the others is ours" if ours_counts else "")
        )
    return Finding(
        "error", name, f"all {most} are in use", f"set {name} to {most + 1} or more, or free one that is not needed"
    )
