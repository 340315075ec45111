"""What may be confirmed after any sequence of Begin, Commit, keepalive and what staging says of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.capture.replication.confirm_rule import (
    CONFIRM_EVERY,
    IDLE_BYTES,
    IDLE_PACE,
    IDLE_SECONDS,
    PACE,
    ConfirmRule,
    PartEndedError,
)

START = 1_000
FAR = START + IDLE_BYTES
NOW = 100.0
"""When START was confirmed."""
SOON, LATER = NOW + PACE / 2, NOW + IDLE_SECONDS

Step = Callable[[ConfirmRule], None]


def rule() -> ConfirmRule:
    made = ConfirmRule(START)
    made.resume(START)
    made.confirm(START, NOW)
    return made


def begin(commit_lsn: int) -> Step:
    return lambda made: made.begin(commit_lsn)


def keepalive(wal_end: int, *, asked: bool = False) -> Step:
    return lambda made: made.keepalive(wal_end, asked=asked)


def commit(made: ConfirmRule) -> None:
    made.commit()


def take(made: ConfirmRule) -> None:
    made.begin_staging()


def stage(position: int, *, empty: bool = False) -> Step:
    return lambda made: made.stage(position, empty=empty)


def want(position: int) -> Step:
    return lambda made: made.want(position)


STAGED = (begin(1_100), commit, take, stage(1_200))

CASES: dict[str, tuple[tuple[Step, ...], float, int | None, int]] = {
    # what came, when it is asked, what should be confirmed, what is staged
    "nothing came": ((), LATER, None, START),
    "a keepalive at our position": ((keepalive(START),), LATER, None, START),
    "a few unneeded bytes": ((keepalive(1_500),), SOON, None, 1_500),
    "a few unneeded bytes, long ago": ((keepalive(1_500),), LATER, 1_500, 1_500),
    "many unneeded bytes": ((keepalive(FAR),), NOW + 2 * IDLE_PACE, FAR, FAR),
    "many unneeded bytes, too soon": ((keepalive(FAR),), SOON, None, FAR),
    "the source asks, too soon": ((keepalive(1_500, asked=True),), SOON, None, 1_500),
    "the source asks": ((keepalive(1_500, asked=True),), NOW + PACE, 1_500, 1_500),
    "a session waits for one without rows": (
        (begin(1_100), want(1_100), commit, take, stage(1_200, empty=True)),
        SOON,
        1_200,
        1_200,
    ),
    "a session waits for one that is not staged": ((begin(1_100), want(1_100), commit, take), SOON, None, START),
    "a session waits for what comes later": ((keepalive(1_500), want(1_600)), SOON, None, 1_500),
    "a keepalive inside of a transaction": ((begin(1_100), keepalive(FAR)), LATER, None, START),
    "one before it, and one inside": ((keepalive(1_050), begin(1_100), keepalive(FAR)), LATER, None, START),
    "a transaction that waits to be staged": ((begin(1_100), commit, keepalive(FAR)), LATER, None, START),
    "one that is being staged": ((begin(1_100), commit, take), LATER, None, START),
    "one that is staged, not durably": (STAGED, NOW + CONFIRM_EVERY, 1_200, 1_200),
    "one that was staged just now": (STAGED, SOON, None, 1_200),
    "one that is staged, and unneeded bytes": ((*STAGED, keepalive(FAR)), NOW + 2 * IDLE_PACE, FAR, FAR),
    "one that is staged, and the next open": ((*STAGED, begin(FAR), keepalive(FAR)), LATER, 1_200, 1_200),
    "the beginning of one that is staged": ((begin(1_100), take, stage(START), keepalive(FAR)), LATER, None, START),
    "one without rows": ((begin(1_100), commit, take, stage(1_200, empty=True)), LATER, 1_200, 1_200),
    "one without rows, far behind a keepalive": (
        (keepalive(FAR), begin(FAR), commit, take, stage(START + 1, empty=True)),
        NOW + 2 * IDLE_PACE,
        FAR,
        FAR,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_may_be_confirmed(case: str) -> None:
    steps, now, due, staged = CASES[case]
    made = rule()
    for step in steps:
        step(made)
    assert made.staged == staged
    assert made.due(now) == due
    if due is not None:
        made.stage(due)
        made.confirm(due, now)
        assert made.confirmed == due
        assert made.due(now) is None


def test_looking_whether_a_position_is_due_changes_nothing() -> None:
    made = rule()
    keepalive(START + 1, asked=True)(made)
    assert not made.is_due(SOON)
    assert [made.is_due(NOW + PACE) for _ in range(2)] == [True, True]
    assert made.due(NOW + PACE) == START + 1
    assert not made.is_due(NOW + PACE)


def test_an_answer_that_can_wait_is_not_forgotten() -> None:
    made = rule()
    made.keepalive(1_500, asked=True)
    assert made.due(SOON) is None
    made.keepalive(1_600)
    assert made.due(NOW + PACE) == 1_600
    made.confirm(1_600, NOW + PACE)
    made.keepalive(1_700)
    assert made.due(NOW + 2 * PACE) is None


def test_what_is_staged_never_goes_back() -> None:
    made = rule()
    made.keepalive(1_500)
    assert made.staged == 1_500
    made.begin(1_500)
    assert made.staged == 1_500


def test_nothing_is_staged_before_the_source_has_shown_its_history() -> None:
    made = ConfirmRule(START)
    made.pass_to(FAR)
    assert made.staged == 0
    made.resume(900)
    assert (made.confirmed, made.staged) == (900, FAR)


@pytest.mark.parametrize("last", [begin(2_000), begin(2_100), keepalive(2_000), keepalive(FAR)])
def test_a_part_ends_where_the_next_begins(last: Step) -> None:
    made = rule()
    made.until = 2_000
    made.begin(1_999)
    made.keepalive(FAR)
    made.commit()
    with pytest.raises(PartEndedError):
        last(made)
    assert made.ended
    made.begin_staging()
    made.stage(1_999)
    assert made.due_at_end() == 2_000


def test_what_is_confirmed_is_not_confirmed_again_at_the_end() -> None:
    made = rule()
    assert made.due_at_end() is None
    made.stage(1_200)
    assert made.due_at_end() == 1_200
