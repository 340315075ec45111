"""What stopped a follower is said with what to do about it."""

from __future__ import annotations

import re

import pytest

from pipeline.errors import (
    CursorExpiredError,
    DatabaseUnavailableError,
    FollowerError,
    NotFollowableError,
    RowDiffersError,
)
from pipeline.followers.registry import RegisteredFollower
from pipeline.followers.running import remedies

RESYNC = "`pipeline followers resync reports"
SKIP = "or skip that transaction: `pipeline followers skip-transaction reports 7`"


def found() -> RegisteredFollower:
    """Of which only its name counts."""
    follower = object.__new__(RegisteredFollower)
    object.__setattr__(follower, "name", "reports")
    object.__setattr__(follower, "copy", "none")
    return follower


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RowDiffersError("it differs", "public.orders", 7), f"{RESYNC} public.orders`"),
        (RowDiffersError("it differs", "public.Odd name", 7), f"{RESYNC} 'public.Odd name'`"),
        (NotFollowableError("a parked event", "public.orders", 7, "parked"), f"{RESYNC} public.orders`, {SKIP}"),
        (NotFollowableError("not sent", "", 7, "skipped"), f"{RESYNC} '*'`, {SKIP}"),
        (
            CursorExpiredError("the log is not kept", 7),
            f"copy all tables again: {RESYNC} '*'`",
        ),
        (FollowerError("it has no position"), "it is tried again by itself"),
    ],
)
def test_a_remedy_is_what_helps(error: Exception, remedy: str) -> None:
    said = remedies.report_of(found(), error)
    assert (said.state, said.reason, said.remedy) == ("stopped", str(error), remedy)


def test_an_unreachable_database_is_tried_again_soon_as_reported() -> None:
    away = remedies.report_of(found(), DatabaseUnavailableError("it does not answer"))
    stopped = remedies.report_of(found(), FollowerError("it has no position"))
    delays = (0.5, 1.0, 2.0, 4.0, 30.0)
    assert [remedies.retry_pause(delay, away) for delay in delays] == [1.0, 2.0, 5.0, 5.0, 5.0]
    assert [remedies.retry_pause(delay, stopped) for delay in delays] == list(delays)
    assert remedies.with_retry_time(stopped, 5.0) == stopped
    assert re.fullmatch(
        r"it is tried again by itself at \d\d:\d\d:\d\d UTC", str(remedies.with_retry_time(away, 5.0).remedy)
    )
