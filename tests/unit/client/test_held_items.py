"""How many items are taken ahead, which of them the program gets, and what becomes of the others as time passes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline.client import held_items
from pipeline.client.held_items import FIRST, SETTLE_AT, HeldItems, Item, collected

VISIBILITY = 30.0
Pass = Callable[[float], None]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Pass:
    """This many seconds pass."""
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in (held_items, sys.modules[__name__]):  # whatever else runs in this process keeps its clock
        monkeypatch.setattr(module, "time", clock)

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def held(items: int, most: int = 100) -> HeldItems:
    """With so many items that were just received."""
    made = HeldItems(most, VISIBILITY)
    made.add([item() for _ in range(items)])
    return made


def item(settle: Callable[[UUID, bool, float | None], None] | None = None) -> Item:
    values: list[Any] = [
        uuid4(),
        1,
        1,
        0,
        "public",
        "t",
        "1",
        "insert",
        {},
        None,
        None,
        None,
        None,
        None,
        datetime.now(UTC),
        1,
        {},
    ]
    return Item(*[*values, time.monotonic() + VISIBILITY, settle])


def test_prefetch_grows_to_what_is_handled_in_a_third_of_the_visibility(passes: Pass) -> None:
    few = held(0)
    assert few.room() == FIRST
    few.add([item() for _ in range(FIRST)])
    few.take_item()
    passes(0.5)
    few.take_item()
    assert few.room() == 20 - (FIRST - 2)
    for _ in range(FIRST - 2):
        few.take_item()
    few.take_item()
    assert few.room() == 100


def test_one_that_takes_long_gets_none_ahead_but_what_it_waits_for(passes: Pass) -> None:
    slow = held(1)
    slow.take_item()
    passes(60)
    assert slow.take_item() is None
    assert slow.room() == 0
    slow.waiting = True
    assert slow.room() == 1


def test_half_of_them_are_left_before_more_are_taken(passes: Pass) -> None:
    half = held(100)
    for _ in range(49):
        half.take_item()
    assert (half.room(), half.is_low) == (0, False)
    half.take_item()
    assert (half.is_low, half.room()) == (True, 50)


def test_what_could_not_be_made_longer_is_given_back(passes: Pass) -> None:
    late = held(2)
    passes(VISIBILITY * 2 / 3 + 1)
    late.add([newest := item()])
    assert late.take_item() is newest
    assert len(late.late()) == 2
    assert late.late() == []


def test_a_lease_is_extended_after_a_third_and_returned_if_unused(passes: Pass) -> None:
    busy = held(3)
    assert busy.renew_in() == pytest.approx(10)
    busy.take_item()
    passes(10)
    assert busy.renew_in() == pytest.approx(0)
    items = busy.to_extend()
    busy.extended(items, time.monotonic() + VISIBILITY)
    assert len(items) == 2
    assert busy.renew_in() == pytest.approx(10)
    passes(10)
    assert busy.to_extend() == []
    assert len(busy.give_back()) == 2
    assert (busy.renew_in(), busy.room()) == (None, 0)
    busy.take_item()
    busy.waiting = True
    assert busy.room() == 1


def test_nothing_is_taken_for_one_that_stops() -> None:
    stopping = held(0)
    stopping.stopping = stopping.waiting = True
    assert stopping.room() == 0


def test_settling_waits_for_more_items_unless_the_program_waits() -> None:
    some = held(0)
    some.acks.extend(uuid4() for _ in range(SETTLE_AT - 1))
    urgent = [some.is_urgent]
    some.waiting = True
    urgent.append(some.is_urgent)
    some.waiting = False
    some.nacks.append((uuid4(), None))
    urgent.append(some.is_urgent)
    assert urgent == [False, True, True]
    assert (len(collected(some.acks)), len(some.acks)) == (SETTLE_AT - 1, 0)


def test_only_what_is_said_first_of_an_item_counts() -> None:
    said: list[tuple[UUID, bool, float | None]] = []
    one = item(lambda *what: said.append(what))
    with one:
        one.nack(7)
    one.ack()
    another = item(lambda *what: said.append(what))

    def interrupted() -> None:
        with another:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert said == [(one.ack_id, False, 7), (another.ack_id, False, None)]
