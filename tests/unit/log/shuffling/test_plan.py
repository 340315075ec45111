"""Runs of the shuffler: whole transactions, in order, never one that is not staged whole."""

from __future__ import annotations

from pipeline.log.shuffling.plan import ShuffleRun, next_run
from pipeline.log.staging.segments import Segment


def segment(number: int, first: int, last: int, rows: int = 10, *, full: bool = True) -> Segment:
    return Segment(number, full, first, last, 0, rows)


def test_nothing_staged() -> None:
    assert next_run([], 0, 0) is None


def test_everything_whole_is_moved_and_full_segments_are_drained() -> None:
    one, two = segment(1, 10, 20), segment(2, 30, 40, full=False)
    assert next_run([one, two], 0, 40) == ShuffleRun((one, two), 0, 40, (1,))


def test_a_half_staged_transaction_waits() -> None:
    one, two = segment(1, 10, 20), segment(2, 20, 20)
    assert next_run([one, two], 0, 10) == ShuffleRun((one,), 0, 10, ())
    assert next_run([one, two], 10, 10) is None
    assert next_run([one, two], 10, 20) == ShuffleRun((one, two), 10, 20, (1, 2))


def test_a_run_is_bounded_but_cuts_no_transaction() -> None:
    one, two, three = segment(1, 10, 20), segment(2, 20, 30), segment(3, 40, 50)
    assert next_run([one, two, three], 0, 50, limit=5) == ShuffleRun((one, two), 0, 30, (1, 2))
    assert next_run([three], 30, 50, limit=5) == ShuffleRun((three,), 30, 50, (3,))


def test_what_was_moved_before_is_not_read_again_but_drained() -> None:
    assert next_run([segment(1, 10, 20)], 20, 20) == ShuffleRun((), 20, 20, (1,))
    assert next_run([segment(1, 10, 20, full=False)], 20, 20) is None
