"""Which rows differ for good: by looks, of which no single one proves anything."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.followers.verifying.unsettled_rows import Key, RowPair, SideRow, UnsettledRows

ONE: Key = ("1",)
Looks = list[tuple[SideRow | None, SideRow | None]]


def row(version: str, *hashes: int | None) -> SideRow:
    return SideRow(ONE, version, hashes)


def settled(*looks: tuple[SideRow | None, SideRow | None]) -> tuple[list[list[RowPair]], list[Key]]:
    """What each look settles as different, and what is pending after the last."""
    settling = UnsettledRows([ONE])
    found = [list(settling.compare(side(here), side(there))) for here, there in looks]
    return found, settling.pending


def side(found: SideRow | None) -> Mapping[Key, SideRow]:
    return {} if found is None else {ONE: found}


def test_a_row_that_is_the_same_at_three_looks_and_differs_is_a_difference() -> None:
    pair = row("a", 1, None), row("b", 1, 2)
    assert settled(pair, pair) == ([[], []], [ONE])
    assert settled(pair, pair, pair) == ([[], [], [RowPair(*pair)]], [])


def test_what_is_only_at_one_side_is_one_too() -> None:
    for pair in ((row("a", 1), None), (None, row("a", 1))):
        assert settled(pair, pair, pair) == ([[], [], [RowPair(*pair)]], [])


def test_equal_values_settle_it_at_once_whatever_their_versions() -> None:
    assert settled((row("a", 1, None), row("b", 1, None))) == ([[]], [])
    assert settled((None, None)) == ([[]], [])


def test_a_row_that_the_follower_gets_a_look_later_is_equal() -> None:
    new, old = row("b", 2), row("x", 1)
    assert settled((new, old), (new, row("y", 2))) == ([[], []], [])


def test_a_row_written_on_either_side_is_compared_from_the_beginning() -> None:
    here, there = row("a", 1), row("x", 2)
    again = row("y", 2)  # written with the same values, perhaps with others in between
    found, pending = settled((here, there), (here, there), (here, again), (here, again))
    assert (found, pending) == ([[], [], [], []], [ONE])
    found, pending = settled((here, there), (row("b", 1), there), (row("b", 1), there))
    assert (found, pending) == ([[], [], []], [ONE])


def test_null_is_not_the_same_as_no_row() -> None:
    assert not RowPair(None, row("a", None)).is_equal
    assert not RowPair(row("a", None), row("a", 0)).is_equal
