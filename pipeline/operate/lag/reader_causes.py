"""Find the readers of the log that lag, and the transaction that makes the source keep WAL. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from pipeline.exports import window
from pipeline.log.readers import FOLLOWER, LAKE, LaggingReader
from pipeline.operate.lag import follower_causes, lsn_times
from pipeline.operate.lag.facts import AtSource, LagFacts, OldestTransaction
from pipeline.operate.lag.model import LagLimit, LagStage, is_late
from pipeline.terminal import drawing

HELD_BYTES = 16_000_000
"""A slot always keeps about this many bytes of WAL: the source removes whole segments, and not at every commit."""


def limits(facts: LagFacts, stages: Mapping[str, LagStage]) -> Iterator[LagLimit]:
    """Yield the lagging readers, then a transaction that makes the source keep WAL."""
    found = (
        _consumer(facts, stages),
        follower_causes.limit(facts, stages),
        _export(facts, stages.get("exported")),
        _transaction(facts),
    )
    yield from (limit for limit in found if limit is not None)


def held_beyond(at: AtSource) -> list[int]:
    """An LSN before which the transaction that keeps WAL began, as a list; empty if the source keeps little WAL.

    The slot's restart_lsn would be no better: it is the last record of running transactions before this transaction.
    """
    if at.restart is None or at.confirmed is None or at.confirmed - at.restart < HELD_BYTES:
        return []
    return [at.confirmed - HELD_BYTES]


def _consumer(facts: LagFacts, stages: Mapping[str, LagStage]) -> LagLimit | None:
    """The consumer that lags most, of the consumers that are late or paused."""
    waiting = [each for each in facts.readers if each.kind not in (LAKE, FOLLOWER)]
    stage = stages.get("consumed")
    if stage is None or not is_late(stage.own_seconds):
        waiting = [each for each in waiting if each.paused]
    if not waiting:
        return None
    first = min(waiting, key=lambda each: each.committed_at)
    age = drawing.lasted((facts.at.read_at - first.committed_at).total_seconds())
    behind = drawing.count(first.seqs, "seq")
    text = f'{first.kind} "{first.name}" lags most: the first of {behind} is {age} old'
    others = f"; behind, too: {drawing.count(len(waiting) - 1, 'other reader')}" if len(waiting) > 1 else ""
    return LagLimit("consumer", text + _state(first) + others, _remedy(first))


def _state(reader: LaggingReader) -> str:
    if reader.paused:
        return "; it is paused"
    return "; no client reads it" if reader.active is False else ""


def _remedy(reader: LaggingReader) -> str:
    if reader.kind != "consumer":
        return reader.remedy
    if reader.paused:
        return f"`pipeline consumers resume {reader.name}`"
    return f"check its client; if the consumer is no longer needed: `pipeline consumers delete {reader.name}`"


def _export(facts: LagFacts, stage: LagStage | None) -> LagLimit | None:
    exports = facts.exports
    if stage is None or stage.reader is None or exports is None or stage.own_seconds is None:
        return None
    failed = exports.last_run is not None and exports.last_run.state == "failed"
    if not failed and stage.own_seconds < 2 * _between_runs(exports.schedule):
        return None
    text = f"exports: the first event that the lake lacks is {drawing.lasted(stage.behind_seconds)} old"
    why = exports.problem or (exports.last_run.reason if failed and exports.last_run else None)
    return LagLimit(
        "export", text + (f"; {why}" if why else ""), "see `pipeline export list`, and the log of the last run"
    )


def _between_runs(schedule: str) -> float:
    first = window.next_run(schedule, datetime.now(UTC))
    second = window.next_run(schedule, first + timedelta(seconds=1)) if first else None
    if first is None or second is None:
        return 0.0
    return (second - first).total_seconds()


def _transaction(facts: LagFacts) -> LagLimit | None:
    """The transaction because of which the source keeps WAL that the server has already confirmed."""
    at, holder = facts.at, facts.holder
    beyond = held_beyond(at)
    if holder is None or not beyond:
        return None
    written = lsn_times.written_at(facts.around.get(beyond[0]), at.written, at.read_at, sampled=at.sampled)
    if written is not None and holder.began > written:  # the transaction began later: the slot has not advanced yet
        return None
    kept = drawing.size((at.confirmed or 0) - (at.restart or 0))
    return LagLimit(
        "transaction",
        f"{_who(holder)}: nothing is late because of it, but the source keeps {kept} of WAL for the slot until it ends",
        _end(holder),
    )


def _who(holder: OldestTransaction) -> str:
    age = drawing.ago(holder.seconds)
    if holder.prepared is not None:
        return f'transaction "{holder.prepared}" of {holder.username} in {holder.database} was prepared {age} ago'
    state = "" if holder.state in (None, "active") else f", {holder.state}"
    name = holder.application or "unnamed"
    return (
        f"pid {holder.pid} ({name}, {holder.username} in {holder.database}{state}) has been in a transaction for {age}"
    )


def _end(holder: OldestTransaction) -> str:
    if holder.prepared is None:
        return f"let it end, or end it: select pg_terminate_backend({holder.pid})"
    return f"in {holder.database}: commit prepared '{holder.prepared}', or rollback prepared '{holder.prepared}'"
