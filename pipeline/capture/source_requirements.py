"""Reports as findings whether the source allows capture: its settings and rights, the server's one slot, and free
slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.capture.catchup import limits
from pipeline.capture.replication import prepare
from pipeline.capture.source import failover, providers, slot_mark, slots, synchronous_standbys, timeline
from pipeline.capture.source.failover import FailoverReport
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import NAME_PREFIX
from pipeline.config.settings import Config
from pipeline.findings import CheckFinding, CheckFindings, SqlRemedy, guarded
from pipeline.postgres import queries, waits
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn

FAILOVER, STANDBYS = "failover", "synchronized_standby_slots"
_SOURCE_LIMITS = """\
select current_setting('max_slot_wal_keep_size') as slot_keeps,
    nullif(current_setting('idle_replication_slot_timeout', true), '0') as slot_timeout,
    current_setting('synchronous_standby_names') as synchronous_names
"""
"""Settings of the source that may stop replication or its users; null where this version has no such setting."""


@dataclass(frozen=True)
class _Settings:
    slot_keeps: str
    slot_timeout: str | None
    synchronous_names: str


def check_slot(
    config: Config, source: Connection, pipeline: Connection, stored: ReplicationSource | None
) -> CheckFindings:
    """Check settings and rights for the one slot, and, before the first start, whether the source has a slot free."""
    yield from guarded("source", lambda: check_settings(source))
    if stored is None:
        yield from guarded("slot", lambda: check_own_slot(config, source, pipeline, stored))
        yield from guarded("limits", lambda: check_limits(config, source))


def check_settings(source: Connection) -> CheckFindings:
    """Check that the source can decode its WAL logically, and that our user may replicate."""
    _, wal_level, may_replicate, user, standby = prepare.read_settings(source)
    if provider := providers.find_provider(source).name:
        yield CheckFinding(
            "ok", "provider", f"{provider}, by the roles that it has; docs/operate/providers.md says what differs there"
        )
    if standby:
        yield CheckFinding("error", "source", "is a standby", "set PIPELINE_SOURCE_DSN to its primary")
    if wal_level == "logical":
        yield CheckFinding("ok", "wal_level", "logical")
    else:
        text = f"wal_level = {wal_level}, but decoding needs logical"
        yield CheckFinding("error", "wal_level", text, providers.find_provider(source).logical)
    if may_replicate:
        yield CheckFinding("ok", "replication right", f'user "{user}" may replicate')
    else:
        text = f'user "{user}" may not replicate'
        remedy = providers.find_provider(source).granting(user)
        yield CheckFinding("error", "replication right", text, remedy, cure=SqlRemedy("source", (remedy,)))


def check_own_slot(
    config: Config, source: Connection, pipeline: Connection | None, stored: ReplicationSource | None
) -> CheckFindings:
    """Check that the slot is ours; report who reads it and up to where, or what its creation waits for."""
    source_id = stored.id if stored else None
    own = slot_mark.own_id(pipeline) if pipeline is not None else None
    slot = slots.find_ours(source, config.slot, source_id, own)
    if pipeline is not None and not _is_elsewhere(source, stored):
        prepare.require_slot(config, source, pipeline, source_id)
        slot_mark.require_own(source, pipeline, config.slot)
    if slot is None:
        yield _new_slot(config, source)
        return
    reader = f"read by our worker (pid {slot.active_pid})" if slot.active_pid else "free"
    yield CheckFinding("ok", "slot", f'"{slot.name}" is {reader}, confirmed up to {lsn.show(slot.confirmed_lsn or 0)}')


def _is_elsewhere(source: Connection, stored: ReplicationSource | None) -> bool:
    """True if the source is another cluster than the known one, which is the one finding about it."""
    known = stored.system_identifier if stored else ""
    return bool(known) and known != timeline.read_identity(source).system_identifier


def check_failover(config: Config, dsn: str, source: Connection) -> CheckFindings:
    """Report whether the next failover of the source at `dsn` leaves a gap, as far as that can be known."""
    found = failover.read(dsn, config.slot)
    slot = slots.find(source, config.slot)
    if found is None and slot is not None and slot.failover is False and not slot.two_phase:
        found = FailoverReport(None, [failover.no_failover(config.slot)])
    for problem in found.problems if found else ():
        yield CheckFinding("warning", FAILOVER, problem.text, problem.remedy)
    if found is None or (found.ready is None and not found.problems):
        yield CheckFinding(
            "ok", FAILOVER, "not known if the next one leaves a gap: the DSN names no standby that answers"
        )
    elif found.ready:
        yield CheckFinding("ok", FAILOVER, f'the standbys that answer have copies of slot "{config.slot}"')
    awaited = failover.read_awaited(source)
    if found and found.ready is not None and awaited.is_set is False:
        text = "without it, the log may have changes that a promoted standby never got, and the server then stops"
        yield CheckFinding("warning", STANDBYS, text, "list the slots of the standbys there")
    if awaited.away:
        text = f"no standby reads {', '.join(awaited.away)}: changes are sent only when all listed standbys have them"
        yield CheckFinding("warning", STANDBYS, text, f"start that standby, or remove its slot from {STANDBYS}")


def _new_slot(config: Config, source: Connection) -> CheckFinding:
    """Return the finding on a slot that does not exist, or that our server is creating, which may have to wait."""
    slot = slots.find(source, config.slot)
    if slot is None or slot.active_pid is None:
        return CheckFinding("ok", "slot", f'"{config.slot}" will be created')
    waiting = waits.find_waits(source, [slot.active_pid])
    why = f", which {waits.describe(waiting)}" if waiting else ""
    text = f'"{slot.name}" is being created (pid {slot.active_pid}){why}'
    return CheckFinding(
        "warning" if waiting else "ok", "slot", text, "let that transaction end" if waiting else "", waits=True
    )


def check_limits(config: Config, source: Connection) -> CheckFindings:
    """Check that a slot and a walsender are free for us; report what invalidates slots or holds up commits there."""
    settings = queries.one(source, _Settings, _SOURCE_LIMITS)
    assert settings is not None  # noqa: S101  a query without a table
    capacity = limits.read_capacity(source)
    slot = slots.find(source, config.slot)
    running = slot is not None and slot.active_pid is not None
    yield _free("max_replication_slots", capacity.free_slots, capacity.max_slots, slot is not None)
    yield replace(_free("max_wal_senders", capacity.free_senders, capacity.max_senders, running), waits=True)
    if settings.slot_keeps != "-1":
        text = f"a slot that holds back more than {settings.slot_keeps} of WAL is invalidated, and its changes are lost"
        yield CheckFinding(
            "warning",
            "max_slot_wal_keep_size",
            text,
            "watch what the slot holds back, or set -1 to keep all needed WAL",
        )
    if settings.slot_timeout:
        text = f"a slot that is not read for {settings.slot_timeout} is invalidated, and its changes are lost"
        remedy = "never stop the server for that long, or set idle_replication_slot_timeout = 0"
        yield CheckFinding("warning", "idle_replication_slot_timeout", text, remedy)
    if synchronous_standbys.can_choose(settings.synchronous_names, NAME_PREFIX):
        text = f"synchronous_standby_names = '{settings.synchronous_names}' makes users' commits wait for this server"
        remedy = "list the standbys by name there, or run `pipeline check --accept synchronous_standby_names`"
        yield CheckFinding("error", "synchronous_standby_names", text, remedy)


def _free(name: str, free: int, most: int, uses_one: bool) -> CheckFinding:
    if uses_one or free > 0:
        return CheckFinding(
            "ok", name, f"{free} of {most} are free" + (", and this server uses one of the others" if uses_one else "")
        )
    return CheckFinding(
        "error", name, f"all {most} are in use", f"set {name} to {most + 1} or more, or free one that is not needed"
    )
