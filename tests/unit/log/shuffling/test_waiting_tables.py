"""Which tables that wait are attached at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.log.shuffling.waiting import WaitingTable, first_attachable, first_whole

OTHERS: list[dict[str, Any]] = [{}, {"run": 8}, {"attaches": False}, {"first_seq": 121}]
ONE = WaitingTable(1, "public.sequin_events", "t_1", True, 7, True, 100, 109, 1_000, 1_009, [1])


def behind(before: WaitingTable, **changed: Any) -> WaitingTable:
    """A table of ten rows."""
    values = {
        "id": before.id + 1,
        "first_seq": before.last_seq + 1,
        "last_seq": before.last_seq + 10,
        "first_lsn": before.last_lsn + 1,
        "last_lsn": before.last_lsn + 10,
        "ends": True,
        **changed,
    }
    return replace(before, **values)


def chain(*changed: dict[str, Any], first: WaitingTable = ONE) -> list[WaitingTable]:
    found = [first]
    for each in changed:
        found.append(behind(found[-1], **each))
    return found


def test_all_of_a_run_are():
    tables = chain({}, {"ends": False}, {})
    assert first_attachable(tables) == tables
    assert first_whole(tables) == tables[:1]


def test_another_run_what_is_moved_and_what_comes_behind_a_gap_are_not():
    for other in OTHERS[1:]:
        tables = chain({}, other, {})
        assert first_attachable(tables) == tables[:2]


def test_half_a_transaction_is_not():
    tables = chain({}, {"ends": False}, {"ends": False})
    assert first_attachable(tables) == tables[:2]


def test_the_first_transaction_always_is_whole():
    """Whatever its tables are: what is not attached is moved, in one transaction too."""
    begun = replace(ONE, ends=False)
    for other in OTHERS:
        tables = chain({"ends": False}, other, {"attaches": False}, first=begun)
        assert first_attachable(tables) == first_whole(tables) == tables[:3]
