"""How many slots may read at once, and what is said when they are fewer than wanted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.capture.catchup.limits import SlotLimit, SourceCapacity, limit_slots, warn_beyond_cores, why_unsafe
from pipeline.capture.source.slots import part_name

WIDE = SourceCapacity(180000, 80, 70, 80, 70)


@given(
    st.builds(SourceCapacity, st.just(180001), st.just(9), st.integers(-3, 9), st.just(8), st.integers(-3, 8)),
    st.none() | st.integers(1, 64),
    st.integers(1, 128),
)
def test_there_is_always_one_and_never_more_than_any_limit(
    room: SourceCapacity, setting: int | None, cores: int
) -> None:
    found = limit_slots(room, "pipeline", setting, cores)
    wanted = setting or min(4, max(1, cores - 1))
    assert 1 <= found.slots <= wanted
    assert found.slots <= 1 + max(0, min(room.free_slots, room.free_senders))
    assert (found.held_by is None) == (found.slots == wanted > 1)


@pytest.mark.parametrize(("setting", "cores", "slots"), [(None, 3, 2), (None, 16, 4), (8, 2, 8), (2, 16, 2)])
def test_cores_decide_only_where_nothing_is_set(setting: int | None, cores: int, slots: int) -> None:
    assert limit_slots(WIDE, "pipeline", setting, cores) == SlotLimit(slots)


@pytest.mark.parametrize(
    ("room", "setting", "cores", "slots", "said"),
    [
        (
            SourceCapacity(180000, 5, 0, 9, 3),
            4,
            4,
            1,
            "the source has 0 of its max_replication_slots = 5 free; raise it",
        ),
        (SourceCapacity(180000, 5, 3, 9, 1), 4, 4, 2, "the source has 1 of its max_wal_senders = 9 free; raise it"),
        (
            SourceCapacity(180000, 5, 3, 9, 1, 2),
            4,
            4,
            2,
            "1 of its max_wal_senders = 9 free, besides 2 for sessions; raise it",
        ),
        (
            SourceCapacity(180000, 5, 1, 9, 3, 2),
            4,
            4,
            2,
            "the source has 1 of its max_replication_slots = 5 free; raise it",
        ),
        (WIDE, 1, 4, 1, "PIPELINE_CATCHUP_MAX_SLOTS is 1; raise it"),
        (WIDE, None, 1, 1, "this process may use one core; give it three"),
        (WIDE, None, 2, 1, "this process may use 2 cores; give it three or more, or set PIPELINE_CATCHUP_MAX_SLOTS"),
        (SourceCapacity(160008, 5, 4, 9, 4), 4, 4, 1, "Postgres 16.8, which can lose .*; update it to 16.9 or newer"),
    ],
)
def test_a_limit_is_named_with_its_remedy(
    room: SourceCapacity, setting: int | None, cores: int, slots: int, said: str
) -> None:
    found = limit_slots(room, "pipeline", setting, cores)
    assert found.slots == slots
    assert re.search(said, found.held_by or "")


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        (150012, False),
        (150013, True),
        (160008, False),
        (160009, True),
        (170004, False),
        (170005, True),
        (180000, True),
        (190000, True),
    ],
)
def test_minors_before_the_fix_of_april_2025_read_with_one_slot(version: int, safe: bool) -> None:
    assert (why_unsafe(version) is None) == safe


def test_more_slots_than_cores_are_obeyed_and_said() -> None:
    assert warn_beyond_cores(None, 1) is warn_beyond_cores(2, 2) is None
    assert "PIPELINE_CATCHUP_MAX_SLOTS is 3, and this process may use 2 cores" in (warn_beyond_cores(3, 2) or "")


def test_a_slot_whose_copies_have_no_name_reads_alone() -> None:
    assert limit_slots(WIDE, "s" * 55, 64, 2).slots == len(part_name("s" * 55, 63)) + 1 == 64
    assert re.search("PIPELINE_SLOT has 56 letters", limit_slots(WIDE, "s" * 56, 4, 2).held_by or "")
