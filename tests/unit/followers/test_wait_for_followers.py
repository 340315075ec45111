"""When a follower has everything, and when it is no use to wait for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.followers.operating.status import FollowerStatus, FollowerTableStatus
from pipeline.followers.operating.waiting import find_obstacle, has_everything

NOW = datetime(2026, 11, 25, tzinfo=UTC)
FOLLOWING = FollowerStatus(
    name="reports",
    state="following",
    reason=None,
    remedy=None,
    seq=40,
    commit_lsn=1,
    committed_at=NOW,
    lag_seqs=0,
    lag_seconds=0.0,
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


def with_table(state: str, reason: str | None = None, remedy: str | None = None) -> FollowerStatus:
    return replace(FOLLOWING, tables=[FollowerTableStatus("public.t", state, reason, remedy)])


@pytest.mark.parametrize(
    ("found", "seq", "has"),
    [
        (FOLLOWING, None, False),
        (FOLLOWING, 41, False),
        (FOLLOWING, 40, True),
        (replace(FOLLOWING, state="paused"), 40, True),
        (replace(FOLLOWING, state="copying"), 40, False),
        (with_table("following"), 40, True),
        (with_table("waiting"), 40, False),
        (replace(FOLLOWING, state="waiting"), 40, False),
        (replace(FOLLOWING, state="stopped"), 40, False),
        (replace(with_table("waiting"), state="paused"), 40, False),
        (with_table("copying"), 40, False),
        (with_table("stopped"), 40, False),
    ],
)
def test_it_has_all_once_its_position_and_its_tables_do(found: FollowerStatus, seq: int | None, has: bool) -> None:
    assert has_everything(found, seq) is has


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (FOLLOWING, None),
        (replace(FOLLOWING, state="waiting", reason="it does not answer"), None),
        (with_table("copying"), None),
        (replace(FOLLOWING, state="stopped"), 'follower "reports" is stopped'),
        (replace(FOLLOWING, state="paused", reason="so", remedy="do"), 'follower "reports" is paused: so; do'),
        (with_table("stopped", "so", "do"), 'follower "reports": table public.t is stopped: so; do'),
    ],
)
def test_only_what_somebody_has_to_change_ends_it(found: FollowerStatus, said: str | None) -> None:
    assert find_obstacle([FOLLOWING, found]) == said
