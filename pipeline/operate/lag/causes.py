"""Find the parts that delay changes on their way to the log, with a cause and a remedy for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.operate.lag import model, reader_causes
from pipeline.operate.lag.facts import LagFacts, RoleSession
from pipeline.operate.lag.model import LagLimit, LagStage, Part
from pipeline.terminal import drawing

_FRESH = 5.0
"""Seconds for which the worker's last report of its load is valid."""
_MOSTLY = 0.5
_START = "start `pipeline serve`, and see its log"
_STARTS = "a server runs, and starts it in a moment; if it does not, see its log"
_UP_TO_DATE = LagLimit("nothing", "nothing: the log is up to date")


def missing_source(reasons: Sequence[str], *, starts: bool) -> LagLimit:
    """The cause of lag before replication has stored its first position.

    `starts`: a server is running and will replicate.
    """
    return LagLimit("worker", "; ".join(reasons) or "nothing has been staged yet", _STARTS if starts else _START)


def limits(facts: LagFacts, stages: Sequence[LagStage]) -> list[LagLimit]:
    """The parts that delay changes: those before the log, the slowest first, then the log's readers; never empty."""
    by_name = {stage.stage: stage for stage in stages}
    late = (by_name["staged"].behind_seconds or 0.0, by_name["shuffled"].own_seconds or 0.0)
    found = [
        (late[0], _before_staging(facts, by_name)),
        (late[1], _shuffle(facts, by_name["shuffled"])),
    ]
    of_the_log = [limit for _, limit in sorted(found, key=lambda each: -each[0]) if limit is not None]
    return [*of_the_log, *reader_causes.limits(facts, by_name)] or [_UP_TO_DATE]


def _before_staging(facts: LagFacts, stages: Mapping[str, LagStage]) -> LagLimit | None:
    if down := _down(facts, "worker", "replication"):
        return down
    if not model.is_late(stages["staged"].behind_seconds):
        return None
    return (
        _silent(facts, "worker", "worker")
        or _unread(facts)
        or _locked(facts, "staging", "staging")
        or _busy(facts)
        or _slowest(facts, stages)
    )


def _down(facts: LagFacts, part: Part, role: str) -> LagLimit | None:
    """The cause of lag if a role does not run, or reports why it waits."""
    reason = next((reason for reason in facts.reasons if reason.startswith(role)), None)
    if reason is None:
        return None
    stopped = reason.endswith(("is not running", "has never run"))
    if stopped:
        return LagLimit(part, reason, _STARTS if facts.starts else _START)
    return LagLimit(part, reason, "fix this cause; the server keeps retrying")


def _silent(facts: LagFacts, part: Part, name: str) -> LagLimit | None:
    session = facts.sessions.get(name)
    if session is None or session.silent < model.LATE_SECONDS:
        return None
    what = "replication worker" if name == "worker" else "shuffler"
    return LagLimit(
        part,
        f"the {what} has been silent for {drawing.ago(session.silent)}: its process is stopped, or gets no CPU",
        "check its machine; a running server kills such a process and starts another",
    )


def _unread(facts: LagFacts) -> LagLimit | None:
    if facts.at.sender is not None:
        return None
    return LagLimit(
        "worker", "nothing reads the slot: the worker is connecting, or was cut off", "see the server's log"
    )


def _locked(facts: LagFacts, part: Part, name: str) -> LagLimit | None:
    session: RoleSession | None = facts.sessions.get(name)
    if session is None or session.blocker is None:
        return None
    since = (
        "" if session.blocker_seconds is None else f", whose transaction is {drawing.ago(session.blocker_seconds)} old"
    )
    who = f"pid {session.blocker} ({session.blocked_by or 'unnamed'})"
    return LagLimit(
        part,
        f"{'staging' if part == 'staging' else 'the shuffler'} waits for a lock in the pipeline database that {who} "
        f"holds{since}",
        f"end that transaction: select pg_terminate_backend({session.blocker})",
    )


def _busy(facts: LagFacts) -> LagLimit | None:
    """A busy worker, or slow staging. Checked before `_slowest`, since both make changes pile up at the source."""
    moved = facts.moved
    if moved.starved is None or moved.blocked is None or moved.load_age is None or moved.load_age > _FRESH:
        return None
    if moved.starved >= _MOSTLY:
        return None
    if moved.blocked >= _MOSTLY:
        return _slow_staging(
            f"the worker waited for the pipeline database during {moved.blocked:.0%} of the last seconds"
        )
    return LagLimit(
        "worker",
        f"the worker: during {1 - moved.starved:.0%} of the last seconds the source had more changes for it, and "
        "staging kept up; so its CPU is the limit",
        "give it a faster or unshared core, or publish fewer columns or tables",
    )


def _slow_staging(why: str) -> LagLimit:
    return LagLimit(
        "staging",
        f"staging: the pipeline database takes rows more slowly than they arrive; {why}",
        "check what that server waits for: its disk, its CPU, a synchronous standby",
    )


def _slowest(facts: LagFacts, stages: Mapping[str, LagStage]) -> LagLimit:
    """The stage that takes most time. It is the cause of lag if the worker is connected and not busy."""
    shares = {name: stages[name].own_seconds or 0.0 for name in ("decoded", "received", "staged") if name in stages}
    slowest = max(shares, key=lambda name: shares[name])
    if len(shares) == 1:
        return LagLimit(
            "staging",
            "decoding, network or staging: without pg_read_all_stats this user may not see how far the walsender is",
            "grant pg_read_all_stats to this user at the source, and run this command again",
        )
    if slowest == "staged":
        return _slow_staging("changes that the worker has received wait to be stored")
    sending = facts.moved.sending if (facts.moved.load_age or _FRESH) < _FRESH else None
    blocked = facts.at.wait_event == "WalSenderWriteData"
    # A walsender that skips WAL without changes for us is ahead of the worker, although it sent nothing: it decodes.
    unreceived = slowest == "received" and not model.is_late(shares["decoded"])
    if unreceived or (blocked if sending is None else sending >= _MOSTLY):
        waits = f"; its walsender (pid {facts.at.sender}) waits until it can send more" if blocked else ""
        return LagLimit(
            "network",
            "the network: the source has sent changes that the worker, which is waiting for them, has not received"
            + waits,
            "check the connection between source and worker: bandwidth, packet loss, a proxy in between",
        )
    return _decoding(facts)


def _decoding(facts: LagFacts) -> LagLimit:
    pid = facts.at.sender
    if facts.at.wait_event == "WaitForStandbyConfirmation":
        return LagLimit(
            "decoding",
            f"decoding: the walsender (pid {pid}) waits until the standbys of synchronized_standby_slots have the WAL",
            "fix those standbys, or remove them from synchronized_standby_slots",
        )
    if facts.spilled:
        return LagLimit(
            "decoding",
            f"decoding: the walsender (pid {pid}) is behind, with transactions so large that it spilled "
            f"{drawing.size(facts.spilled)} of them to the source's disk in the last minute",
            "raise logical_decoding_work_mem at the source, or write less in one transaction",
        )
    return LagLimit(
        "decoding",
        f"decoding: the walsender (pid {pid}) is behind what the source writes, or is decoding a large transaction",
        "check whether it has a core of the source to itself; it also decodes changes of tables that are not published",
    )


def _shuffle(facts: LagFacts, stage: LagStage) -> LagLimit | None:
    waits = facts.moved.watermark < facts.moved.complete
    if down := _down(facts, "shuffle", "shuffle"):
        stopped = down.remedy == _START
        remedy = _START if stopped else "fix the cause, then it continues by itself; or set PIPELINE_ON_POISON=park"
        return LagLimit("shuffle", down.text, remedy)
    if not waits or not model.is_late(stage.own_seconds):
        return None
    return (
        _silent(facts, "shuffle", "shuffle")
        or _locked(facts, "shuffle", "shuffle")
        or LagLimit(
            "shuffle",
            "the shuffle: changes are staged faster than they are moved to the events tables",
            "check what the pipeline database waits for: its disk, its CPU, indexes and triggers on the events table",
        )
    )
