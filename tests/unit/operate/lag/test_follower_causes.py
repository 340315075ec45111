"""Which follower is named as the one that is farthest behind, and what is said of it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.followers.applier_session import ApplierActivity
from pipeline.followers.operating.status import FollowerStatus
from pipeline.operate.lag import causes
from pipeline.operate.lag.facts import AtSource, LagFacts, StoredPositions
from pipeline.operate.lag.model import LATE_SECONDS, LagLimit, LagStage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = LagFacts(
    AtSource(1000, NOW, restart=0, confirmed=0, sender=7, sent=1000, received=1000, staged=1000, sampled=True),
    StoredPositions(uuid.UUID(int=1), 0, staged=1000, complete=1000, watermark=1000),
)
LATE = LATE_SECONDS + 1
REPORTS = FollowerStatus(
    name="reports",
    state="following",
    reason=None,
    remedy=None,
    seq=40,
    commit_lsn=1,
    committed_at=NOW,
    lag_seqs=5,
    lag_seconds=LATE,
    tables=[],
    database="host=db",
    patterns=[],
    copy="source",
    schema="create",
    ddl="follow",
    on_rewrite="copy",
    truncate=False,
    made_at=NOW,
    made_seq=1,
    reported_at=NOW,
)


def other(name: str, **values: Any) -> FollowerStatus:
    return replace(REPORTS, name=name, **values)


def limits(*found: FollowerStatus, applier: ApplierActivity | None = None, own: float = LATE) -> list[LagLimit]:
    order = ("decoded", "received", "staged", "shuffled")
    stages = [
        *(LagStage(name, 1000, 0, 0.0, 0, 0.0) for name in order),
        LagStage("followed", 0, 1, own, 1, own, "reports"),
    ]
    return causes.limits(replace(FACTS, followers=found, applier=applier), stages)


@pytest.mark.parametrize(
    ("applier", "text", "remedy"),
    [
        (
            ApplierActivity("lock", "pid 7 (psql)", 7, 45.0),
            "a lock that pid 7 (psql) holds there, whose tran",
            "backend(7)",
        ),
        (ApplierActivity("computing"), "its server's CPU is busy", "core"),
        (ApplierActivity("waiting", "IO DataFileRead"), "its server waits for IO DataFileRead", "disk"),
        (ApplierActivity("idle"), "its server waits for its applier", "CPU"),
        (ApplierActivity("absent"), "its applier is not connected", "`pipeline followers show reports`"),
        (ApplierActivity("unknown", "no password"), "cannot be read: no password", "`pipeline followers show reports`"),
    ],
    ids=lambda each: each.doing if isinstance(each, ApplierActivity) else "",
)
def test_one_that_is_late_is_named_with_what_its_applier_waits_for(
    applier: ApplierActivity, text: str, remedy: str
) -> None:
    [found] = limits(REPORTS, other("away", lag_seqs=0, lag_seconds=0.0), applier=applier)
    assert found.part == "follower"
    assert found.text.startswith('follower "reports" is farthest behind: the first of 5 seqs is 5.0 s old; ')
    assert text in found.text
    assert remedy in found.remedy


def test_its_state_comes_before_what_could_be_seen() -> None:
    waiting = other("reports", state="waiting", reason="it does not answer", remedy="start it")
    [found] = limits(waiting, applier=ApplierActivity("computing"))
    assert found.text.endswith("it is waiting: it does not answer")
    assert found.remedy == "start it"


def test_one_that_is_stopped_is_named_though_none_is_late_yet() -> None:
    stopped = other("stopped", state="stopped", reason="so", remedy="do", lag_seconds=1.0)
    paused = other("paused", state="paused", reason="a user has paused it", remedy="resume", lag_seconds=0.5)
    [found] = limits(REPORTS, paused, stopped, own=0.0)
    assert found.text == (
        'follower "stopped" is farthest behind: the first of 5 seqs is 1.0 s old; it is stopped: so; '
        "behind, too: 1 other follower"
    )
    assert found.remedy == "do"


def test_one_that_lacks_nothing_is_not_named() -> None:
    assert [each.part for each in limits(other("paused", state="paused", lag_seqs=0), own=0.0)] == ["nothing"]
    assert [each.part for each in limits(REPORTS, own=1.0)] == ["nothing"]
