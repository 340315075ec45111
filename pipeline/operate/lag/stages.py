"""Measure how far each stage is behind the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from pipeline.capture.replication.confirm_rule import IDLE_BYTES, IDLE_SECONDS
from pipeline.config.settings import Config
from pipeline.consumers import status
from pipeline.exports.status import ExportStatus
from pipeline.followers import applier_session, registry
from pipeline.followers.operating import status as followers
from pipeline.log.readers import FOLLOWER, LAKE, LaggingReader, ReaderRegistry
from pipeline.log.table import EventsTable
from pipeline.operate.lag import causes, follower_causes, lsn_times, reader_causes
from pipeline.operate.lag.facts import AtSource, LagFacts, SourceReading, StoredPositions, around, sessions, spilled
from pipeline.operate.lag.model import LATE_SECONDS, LagReport, LagStage, is_late
from pipeline.postgres import role_locks
from pipeline.postgres.connections import Connection

FOLLOWER_SECONDS = 2.0
"""Seconds that the farthest follower has to accept a connection, and then again to answer a query."""


def measure(
    config: Config,
    connection: Connection,
    reading: SourceReading,
    moved: StoredPositions | None,
    reasons: Sequence[str],
    exports: ExportStatus | None,
) -> LagReport:
    """Explain the lag at the moment of `reading`. `reasons`: why the roles do not run."""
    at = reading.at
    starts = role_locks.server_starts(connection, "replication")
    if moved is None:
        return LagReport([causes.missing_source(reasons, starts=starts)], at.written)
    found = positions(at, moved)
    exported = exports is not None and not exports.off and exports.exported_seq is not None
    readers = ReaderRegistry(connection, EventsTable.parse(config.events_table))
    lake = (LAKE, str(config.exports)) if exported else None
    facts = LagFacts(
        at=at,
        moved=moved,
        holder=reading.holder,
        sessions=sessions(connection, moved.source_id),
        readers=[*_lagging(readers, lake), *_elsewhere(connection)],
        around=around(connection, moved, [*found.values(), *reader_causes.held_beyond(at)]),
        spilled=spilled(connection, moved, at),
        reasons=tuple(reasons),
        starts=starts,
        exports=exports,
    )
    stages = [*log_stages(facts, found)]
    shuffled = stages[-1]
    kinds = {kind for kind, _ in readers.known()}
    if kinds - {LAKE, FOLLOWER}:
        stages.append(_taken(facts, shuffled, "consumed", lambda kind: kind not in (LAKE, FOLLOWER)))
    if exported:
        stages.append(_taken(facts, shuffled, "exported", lambda kind: kind == LAKE))
    if FOLLOWER in kinds:
        stages.append(_taken(facts, shuffled, follower_causes.STAGE, lambda kind: kind == FOLLOWER))
        facts = _with_followers(connection, facts, stages[-1])
    return LagReport(causes.limits(facts, stages), at.written, stages)


def _lagging(readers: ReaderRegistry, lake: tuple[str, str] | None) -> Iterator[LaggingReader]:
    return (each for each in readers.lagging() if each.kind != LAKE or (each.kind, each.name) == lake)


def _elsewhere(connection: Connection) -> Iterator[LaggingReader]:
    """Yield the lagging consumers of all events tables but the default one."""
    for name in status.list_read_tables(connection):
        found = ReaderRegistry(connection, EventsTable.parse(name)).lagging(of_default=False)
        yield from (each for each in found if each.kind not in (LAKE, FOLLOWER))


def _with_followers(connection: Connection, facts: LagFacts, followed: LagStage) -> LagFacts:
    """Return the facts with the state of the followers, and of the applier that is late."""
    known = registry.find(connection)
    served = followers.is_served(connection)
    shown = [followers.follower_status(each, served=served) for each in known]
    late = next((each for each in shown if each.name == followed.reader), None)
    applier = None
    if late is not None and is_late(followed.own_seconds) and late.state == "following" and late.reason is None:
        dsn = next(each.dsn for each in known if each.name == late.name)
        applier = applier_session.observe(late.name, dsn, FOLLOWER_SECONDS)
    return replace(facts, followers=shown, applier=applier)


def positions(at: AtSource, moved: StoredPositions) -> dict[str, int]:
    """The position of each stage by name; a stage without waiting changes has the position of the stage before."""
    staged = max(moved.staged, at.staged or 0)
    waits = moved.watermark < moved.complete
    shuffled = max(moved.watermark, moved.moved or 0) if waits else staged
    found = {"shuffled": min(shuffled, staged), "staged": staged}
    sent, received = (at.sent, at.received) if at.sender is not None else (staged, staged)
    if sent is not None and received is not None:
        found["received"] = max(received, staged)
        found["decoded"] = max(sent, found["received"])
    order = ("decoded", "received", "staged", "shuffled")
    return {name: min(found[name], at.written) for name in order if name in found}


def log_stages(facts: LagFacts, positions: dict[str, int]) -> Iterator[LagStage]:
    """The stages up to the log, from their positions by name."""
    before: LagStage | None = None
    for name, position in positions.items():
        before = _stage(facts, before, name, position, _late(facts, position))
        yield before


def _late(facts: LagFacts, position: int) -> float | None:
    at = facts.at
    if position >= at.written:
        return 0.0
    written = lsn_times.written_at(facts.around.get(position), at.written, at.read_at, sampled=at.sampled)
    if written is None:
        return None
    seconds = _seconds(at.read_at, written)
    return None if _is_perhaps_idle(facts, position, seconds) else seconds


def _is_perhaps_idle(facts: LagFacts, position: int, seconds: float) -> bool:
    """True if the WAL after the position may have no changes for us; only for a user who may not see walsenders.

    An idle worker reports its position to its walsender at once, but stores it only now and then.
    """
    at = facts.at
    if at.sender is None or at.sent is not None or position < facts.moved.staged:
        return False
    return at.written - position < IDLE_BYTES and LATE_SECONDS <= seconds < IDLE_SECONDS + LATE_SECONDS


def _taken(facts: LagFacts, shuffled: LagStage, name: str, of_kind: Callable[[str], bool]) -> LagStage:
    """One stage for all readers of one kind: the position of the reader that lags most."""
    waiting = [each for each in facts.readers if of_kind(each.kind)]
    first = min(waiting, key=lambda each: each.committed_at, default=None)
    if first is None:
        return _stage(facts, shuffled, name, shuffled.lsn, shuffled.behind_seconds)
    known = first.commit_lsn is not None and first.epoch == facts.moved.epoch
    position = min(first.commit_lsn or 0, shuffled.lsn) if known else 0
    late = max(_seconds(facts.at.read_at, first.committed_at), shuffled.behind_seconds or 0.0)
    return replace(_stage(facts, shuffled, name, position, late), reader=first.name)


def _stage(facts: LagFacts, before: LagStage | None, name: str, position: int, late: float | None) -> LagStage:
    behind = max(0, facts.at.written - position)
    own = late
    if late is not None and before is not None:
        own = round(max(0.0, late - (before.behind_seconds or 0.0)), 1) if _is_known(before, position) else None
    return LagStage(name, position, behind, late, max(0, behind - (before.behind_bytes if before else 0)), own)


def _is_known(before: LagStage, position: int) -> bool:
    """True if the lag that a stage adds is known.

    If only the lag of the idle worker before it is unknown, all lag is its own.
    """
    return before.behind_seconds is not None or position < before.lsn


def _seconds(now: datetime, then: datetime) -> float:
    return round(max(0.0, (now - then).total_seconds()), 1)
