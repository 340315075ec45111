"""The source's part of the preflight: checks replication, and finds the tables that will not be captured."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pipeline.capture import source_requirements
from pipeline.capture.catchup import limits
from pipeline.capture.replication import prepare
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import slots
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import application_name
from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings, guarded
from pipeline.operate import slot_owners
from pipeline.operate.preflight import source_roles, table_checks
from pipeline.postgres.connections import Connection
from pipeline.snapshots import preflight as snapshots
from pipeline.terminal import drawing
from pipeline.wires.pgdeltastream import preflight
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

CATCH_UP = "catch-up"

_OF_PRIMARY = {"replication", "history", "slot", source_requirements.FAILOVER, "limits", CATCH_UP, preflight.NAME}
"""Checks that mean nothing on a standby: its primary has other slots and positions, but the same tables and roles."""


def run(
    config: Config, dsn: str, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> CheckFindings:
    """Yield all findings on the source at `dsn`. `pipeline` is None if it does not answer.

    `stored`: the source as the pipeline database knows it; None before the first start.
    """
    known = _sessions(source, pipeline, stored)
    parts: dict[str, Callable[[], Iterable[CheckFinding]]] = {
        "replication": lambda: _replicates(dsn, stored),
        "history": lambda: _history(config, source, pipeline, stored),
        "slot": lambda: source_requirements.check_own_slot(config, source, pipeline, stored),
        source_requirements.FAILOVER: lambda: source_requirements.check_failover(config, dsn, source),
        "limits": lambda: source_requirements.check_limits(config, source),
        CATCH_UP: lambda: check_catchup(config, source, list(known)),
        preflight.NAME: lambda: preflight.run(config, source, known),
        "tables": lambda: table_checks.run(config, source, pipeline, stored),
        snapshots.NAME: lambda: snapshots.run(config, source, pipeline, stored),
        source_roles.NAME: lambda: source_roles.run(config, source, pipeline),
    }
    found = list(guarded("source", lambda: source_requirements.check_settings(source)))
    yield from found
    wrong = {finding.name: finding.waits for finding in found if finding.level == "error"}
    if wrong.get("source"):  # the source cannot be queried
        return
    left_out = _OF_PRIMARY if "source" in wrong else {"replication"} if "replication right" in wrong else set()
    for name, check in parts.items():
        if name not in left_out:
            yield from guarded(name, check)


def _sessions(
    source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> Mapping[str, StoredSession]:
    """Sessions of clients by slot; none if the pipeline database does not answer, which is a separate finding."""
    if pipeline is None or stored is None:
        return {}
    return slot_owners.sessions(source, pipeline, stored.id, slots.all_slots(source))


def _history(
    config: Config, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> CheckFindings:
    """Yield an error for each reason why our stored positions cannot continue at this source, except at its slot."""
    if stored is None or pipeline is None:
        return
    for name, check in prepare.continuity_checks(config, source, pipeline, stored).items():
        if name not in ("slot", "mark"):
            yield from guarded(name, partial(_only_errors, check))


def _only_errors(check: Callable[[], None]) -> CheckFindings:
    check()
    yield from ()


def _replicates(dsn: str, stored: ReplicationSource | None) -> CheckFindings:
    stream = ReplicationStream(dsn, application_name(stored.id if stored else uuid.uuid4()))
    try:
        identity = stream.identify()
    finally:
        stream.close()
    yield CheckFinding("ok", "replication", f"cluster {identity.system_identifier} accepts a replication connection")


def check_catchup(config: Config, source: Connection, sessions: Sequence[str] = ()) -> CheckFindings:
    """Report how many slots could read a backlog, and what prevents more. Never an error: one slot always suffices.

    `sessions`: slots of clients' sessions, for which walsenders are reserved.
    """
    threshold, setting, cores = config.catchup_bytes, config.catchup_max_slots, limits.count_cores()
    if threshold is None:
        yield CheckFinding("ok", CATCH_UP, "off: a backlog is read by one slot, however large it is")
        return
    room = limits.capacity_for_parts(source, config.slot, sessions)
    found = limits.limit_slots(room, config.slot, setting, cores)
    if found.held_by is None or limits.wanted_slots(setting, cores) == 1:
        readers = "one slot" if found.slots == 1 else f"{found.slots} slots at once"
        yield CheckFinding("ok", CATCH_UP, f"a backlog of more than {drawing.size(threshold)} is read by {readers}")
    else:
        why, _, remedy = found.held_by.partition("; ")
        yield CheckFinding(
            "warning", CATCH_UP, f"a backlog can be read by {drawing.count(found.slots, 'slot')}: {why}", remedy
        )
    if (beyond := limits.warn_beyond_cores(setting, cores)) is not None:
        text, _, remedy = beyond.partition("; ")
        yield CheckFinding("warning", CATCH_UP, text, remedy)
