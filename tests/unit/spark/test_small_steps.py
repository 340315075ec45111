"""Which change is the last of each key, and where the values are that updates left out."""

from __future__ import annotations

from lake.folding.small.steps import GONE, RowHolder, trace_steps

Change = tuple[str | None, str, str | None]


def holders(changes: list[Change], omitted: dict[int, frozenset[int]]) -> dict[str | None, RowHolder]:
    """Of each live key, where the value of column 0 is."""
    found = trace_steps(changes, omitted)
    return {key: found.holder(change, 0) for key, change in found.last.items() if change != GONE}


def test_the_last_change_of_a_key_counts() -> None:
    changes: list[Change] = [
        ("1", "insert", None),
        ("2", "insert", None),
        ("1", "update", None),
        ("2", "delete", None),
        ("3", "update", "1"),
        ("4", "read", None),
        ("4", "update", "4"),
    ]
    assert trace_steps(changes, {}).last == {"1": GONE, "2": GONE, "3": 4, "4": 6}


def test_a_value_is_followed_through_the_keys_of_its_row() -> None:
    changes: list[Change] = [
        ("1", "insert", None),
        ("2", "update", "1"),
        ("1", "insert", None),
        ("3", "update", "2"),
        ("3", "update", None),
        ("9", "update", "8"),
        ("9", "update", None),
    ]
    omits = frozenset({0})
    left_out = {1: omits, 3: omits, 4: frozenset({0, 1}), 5: omits, 6: omits}
    assert holders(changes, left_out) == {"1": 2, "3": 0, "9": "8"}


def test_a_value_that_nothing_holds_is_nowhere() -> None:
    changes: list[Change] = [("1", "delete", None), ("1", "update", None)]
    assert holders(changes, {1: frozenset({0})}) == {"1": GONE}
    assert holders(changes, {1: frozenset({5})}) == {"1": 1}
