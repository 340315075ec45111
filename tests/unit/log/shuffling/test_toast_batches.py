"""Where the log has a row's values, by the relation history; which rows are filled in together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.log.shuffling.toast_batches import RelationVersion, UnfilledRow, batches, origin


def column(name: str, attnum: int, *names: tuple[str, int]) -> dict[str, Any]:
    return {"name": name, "attnum": attnum, "names": [{"name": each, "lsn": lsn, "idx": 0} for each, lsn in names]}


LEAF, ROOT = 7, 5
FORM = RelationVersion(
    1, LEAF, LEAF, ["id"], [column("id", 1, ("id", 10)), column("a", 2, ("a", 10))], True, [100], (10, 0)
)


def places(*history: RelationVersion) -> list[tuple[int, int]]:
    """Under which oids from which LSNs on."""
    return [(place["oid"], place["lsn"]) for place in origin(history)["places"]]


def test_a_table_is_known_since_its_first_form() -> None:
    assert places(FORM) == [(LEAF, 10)]
    assert places(FORM, replace(FORM, id=2, since=(20, 0))) == [(LEAF, 10)]


def test_another_key_begins_anew_and_one_that_is_renamed_goes_on() -> None:
    renamed = [column("number", 1, ("id", 10), ("number", 20)), FORM.columns[1]]
    assert places(FORM, replace(FORM, key_columns=["number"], columns=renamed, since=(20, 0))) == [(LEAF, 10)]
    assert places(FORM, replace(FORM, key_columns=["a"], since=(20, 0))) == [(LEAF, 20)]
    rewritten = [column("id", 1, ("id", 20)), FORM.columns[1]]
    assert places(FORM, replace(FORM, columns=rewritten, since=(20, 0))) == [(LEAF, 20)]
    assert places(replace(FORM, key_columns=[])) == []


def test_what_was_not_published_for_a_while_begins_anew() -> None:
    assert places(FORM, replace(FORM, memberships=[100, 101], since=(20, 0))) == [(LEAF, 10)]
    assert places(FORM, replace(FORM, memberships=[101], since=(20, 0))) == [(LEAF, 20)]
    assert places(FORM, replace(FORM, memberships=None, since=(20, 0))) == [(LEAF, 20)]


def test_a_partition_is_known_under_its_root_only_since_it_joined() -> None:
    joined = replace(FORM, table_oid=ROOT, since=(20, 0))
    assert places(FORM, joined, replace(joined, since=(30, 0))) == [(ROOT, 20), (LEAF, 10)]
    assert places(FORM, joined, replace(FORM, since=(30, 0))) == [(LEAF, 30)]
    assert places(FORM, replace(joined, unique_in_root=False)) == []
    assert places(replace(joined, unique_in_root=False, since=(10, 0)), joined) == [(ROOT, 20)]


def test_rows_are_filled_in_together_until_one_needs_what_another_supplies() -> None:
    def row(ordinal: int, columns: str, before: str = "1", after: str = "1") -> UnfilledRow:
        return UnfilledRow(ordinal, 1, before, after, list(columns))

    rows = [row(0, "ab"), row(1, "ab"), row(2, "a"), row(3, "ab"), row(4, "ab", "1", "2"), row(5, "ab", "2", "2")]
    cut = [[each.ordinal for each in batch] for batch in batches(rows, {1: LEAF})]
    assert cut == [[0, 1, 2], [3, 4], [5]]
