"""Find the follower that is farthest behind, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.followers.applier_session import ApplierActivity
from pipeline.followers.operating.status import FollowerStatus
from pipeline.operate.lag.facts import LagFacts
from pipeline.operate.lag.model import LagLimit, LagStage, is_late
from pipeline.terminal import drawing

STAGE = "followed"
_SEE = "see `pipeline followers show {}`"


def limit(facts: LagFacts, stages: Mapping[str, LagStage]) -> LagLimit | None:
    """The follower that is farthest behind, if it is late; else a stopped or paused follower that lacks events."""
    stage = stages.get(STAGE)
    stuck = [each for each in facts.followers if each.state in ("paused", "stopped") and each.lag_seqs]
    late = [each for each in facts.followers if stage is not None and each.name == stage.reader]
    if stage is None or not is_late(stage.own_seconds):
        late = []
    found = [*late, *sorted(stuck, key=lambda each: -each.lag_seconds)]
    if not found:
        return None
    first = found[0]
    behind, age = drawing.count(first.lag_seqs, "seq"), drawing.lasted(first.lag_seconds)
    others = len({each.name for each in found}) - 1
    why, remedy = _why(first, facts.applier)
    text = f'follower "{first.name}" is farthest behind: the first of {behind} is {age} old; {why}'
    return LagLimit(
        "follower", text + (f"; behind, too: {drawing.count(others, 'other follower')}" if others else ""), remedy
    )


def _why(late: FollowerStatus, seen: ApplierActivity | None) -> tuple[str, str]:
    """The reason why the follower is late, and the remedy."""
    see = _SEE.format(late.name)
    if late.state != "following" or late.reason is not None or seen is None:
        return f"it is {late.state}" + (f": {late.reason}" if late.reason else ""), late.remedy or see
    match seen.doing:
        case "lock":
            seconds = seen.blocker_seconds
            since = "" if seconds is None else f", whose transaction is {drawing.ago(seconds)} old"
            return (
                f"it waits for a lock that {seen.text} holds there{since}",
                f"end that transaction there: select pg_terminate_backend({seen.blocker})",
            )
        case "computing":
            return (
                "its server's CPU is busy with the changes that are applied",
                "give it a faster or unshared core; drop indexes and triggers that are not needed there",
            )
        case "waiting":
            return f"its server waits for {seen.text}", "check that server: its disk, its CPU, a synchronous standby"
        case "idle":
            return (
                "its server waits for its applier, and the applier for CPU, or for events from the pipeline database",
                "check the CPU of the machine of `pipeline serve`, and of the pipeline database",
            )
        case "absent":
            return "its applier is not connected", see
        case "unknown":
            return f"the reason for its wait cannot be read: {seen.text}", see
