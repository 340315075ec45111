"""A backlog's parts: they take the same time, without a gap, and are reached in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.capture.catchup.plan import SKIP, BacklogPart, order_parts, split_backlog

LSNS = st.integers(0, 2**62)
SPANS = st.integers(0, 10**12)
COUNTS = st.integers(1, 64)


@given(LSNS, SPANS, COUNTS)
def test_parts_cover_the_backlog_without_gap_or_overlap(position: int, span: int, count: int) -> None:
    parts = split_backlog(position, position + span, count)
    assert len(parts) == (min(count, span) if min(count, span) > 1 else 0)
    if parts:
        assert parts[0].from_lsn == position
        assert parts[-1].until_lsn is None
        assert parts[-1].from_lsn < position + span
    assert all(before.until_lsn == after.from_lsn for before, after in pairwise(parts))
    assert [part.worker for part in parts] == list(range(len(parts)))


def sizes(parts: list[BacklogPart], wal_end: int) -> list[int]:
    return [(part.until_lsn or wal_end) - part.from_lsn for part in parts]


@given(LSNS, SPANS, COUNTS)
def test_no_part_is_empty(position: int, span: int, count: int) -> None:
    parts = split_backlog(position, position + span, count)
    assert all(size > 0 for size in sizes(parts, position + span))


@given(LSNS, st.integers(10**6, 10**12), COUNTS)
def test_all_parts_take_the_same_time_with_what_their_slots_skip(position: int, span: int, count: int) -> None:
    parts = split_backlog(position, position + span, count)
    times = [
        size + SKIP * (part.from_lsn - position)
        for part, size in zip(parts, sizes(parts, position + span), strict=True)
    ]
    assert not times or max(times) - min(times) <= 2 + span / 10**9


@given(COUNTS)
def test_a_backlog_that_has_gone_meanwhile_is_not_split(count: int) -> None:
    assert split_backlog(1000, 900, count) == split_backlog(1000, 1000, count) == split_backlog(1000, 1001, count) == []


@given(SPANS, COUNTS, st.data())
def test_a_part_is_reached_when_all_before_it_are_complete(span: int, count: int, data: st.DataObject) -> None:
    parts = [
        replace(part, position=part.from_lsn + data.draw(st.integers(0, span)))
        for part in split_backlog(1000, 1000 + span, count)
    ]
    found = order_parts(reversed(parts))
    complete = [part.complete for part in found]
    first = complete.index(False) if parts else 0
    assert [part.reached for part in found] == [place <= first for place in range(len(found))]


def test_the_open_part_is_never_complete() -> None:
    assert not BacklogPart(1, 10, None, 2**62).complete
    assert BacklogPart(1, 10, 20, 20).complete
    assert not BacklogPart(1, 10, 20, 19).complete


def test_what_is_left_of_a_part() -> None:
    assert [BacklogPart(1, 10, 20, position).left_bytes for position in (10, 19, 20, 25)] == [10, 1, 0, 0]
    assert BacklogPart(1, 10, None, 15).left_bytes is None
