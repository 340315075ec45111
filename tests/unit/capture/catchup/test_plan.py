"""A backlog's parts: equal, without a gap, and reached in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.capture.catchup.plan import Part, chain, split

LSNS = st.integers(0, 2**62)
SPANS = st.integers(0, 10**12)
COUNTS = st.integers(1, 64)


@given(LSNS, SPANS, COUNTS)
def test_parts_cover_the_backlog_without_gap_or_overlap(position: int, span: int, count: int) -> None:
    parts = split(position, position + span, count)
    assert len(parts) == (min(count, span) if min(count, span) > 1 else 0)
    if parts:
        assert parts[0].from_lsn == position
        assert parts[-1].until_lsn is None
        assert parts[-1].from_lsn < position + span
    assert all(before.until_lsn == after.from_lsn for before, after in pairwise(parts))
    assert [part.worker for part in parts] == list(range(len(parts)))


@given(LSNS, SPANS, COUNTS)
def test_parts_are_equal_to_a_byte_and_none_is_empty(position: int, span: int, count: int) -> None:
    parts = split(position, position + span, count)
    sizes = {(part.until_lsn or position + span) - part.from_lsn for part in parts}
    assert not parts or (min(sizes) > 0 and max(sizes) - min(sizes) <= 1)


@given(COUNTS)
def test_a_backlog_that_has_gone_meanwhile_is_not_split(count: int) -> None:
    assert split(1000, 900, count) == split(1000, 1000, count) == split(1000, 1001, count) == []


@given(SPANS, COUNTS, st.data())
def test_a_part_is_reached_when_all_before_it_are_complete(span: int, count: int, data: st.DataObject) -> None:
    parts = [
        replace(part, position=part.from_lsn + data.draw(st.integers(0, span)))
        for part in split(1000, 1000 + span, count)
    ]
    found = chain(reversed(parts))
    complete = [part.complete for part in found]
    first = complete.index(False) if parts else 0
    assert [part.reached for part in found] == [place <= first for place in range(len(found))]


def test_the_open_part_is_never_complete() -> None:
    assert not Part(1, 10, None, 2**62).complete
    assert Part(1, 10, 20, 20).complete
    assert not Part(1, 10, 20, 19).complete


def test_what_is_left_of_a_part() -> None:
    assert [Part(1, 10, 20, position).left_bytes for position in (10, 19, 20, 25)] == [10, 1, 0, 0]
    assert Part(1, 10, None, 15).left_bytes is None
