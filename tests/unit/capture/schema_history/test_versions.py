"""Which values of the log are still those of a column, and which may have been rewritten in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.capture.schema_history.catalog_table import CatalogColumn, CatalogTable
from pipeline.capture.schema_history.continuity import ColumnRewrite, altered_before, first_version, next_version
from pipeline.capture.schema_history.fingerprint import ColumnFingerprint, TableFingerprint
from pipeline.capture.schema_history.keys import key_columns
from pipeline.capture.schema_history.versions import ColumnName, HistoryVersion, PublishedColumn
from pipeline.wal.messages import RelationColumn, RelationMessage

FILE, OTHER_FILE = 100, 200
THEN, NOW = (1000, 0), (2000, 3)


def column(name: str, attnum: int | None, type_oid: int = 25) -> PublishedColumn:
    return PublishedColumn(name, type_oid, -1, "", type_oid, False, attnum)


def form(*columns: PublishedColumn, table_oid: int = 1) -> HistoryVersion:
    return HistoryVersion(1, "public", "t", table_oid, "public", "t", "d", columns, (), memberships=(1,))


def read(file: int = FILE, version: str = "7", *, certain: bool = True, missing: bool = False) -> TableFingerprint:
    """Of columns 1 and 2, of which the second has this version."""
    of_first = ColumnFingerprint("7", settled=True, missing=False, filled=False)
    of_second = ColumnFingerprint(version, certain, missing, filled=False)
    return TableFingerprint(file, certain, 1500, {1: of_first, 2: of_second})


BEFORE = first_version(form(column("id", 1, 23), column("a", 2)), THEN)
KEPT, ANEW = (ColumnName("a", *THEN),), (ColumnName("a", *NOW),)


def following(
    now: HistoryVersion, then: TableFingerprint | None, fingerprint: TableFingerprint | None
) -> tuple[tuple[ColumnName, ...], list[ColumnRewrite]]:
    """Names of the last column, and what was rewritten."""
    found, rewritten = next_version(BEFORE, then, now, fingerprint, NOW)
    return found.columns[-1].names, rewritten


SAME = form(column("id", 1, 23), column("a", 2))


@pytest.mark.parametrize(
    ("then", "now"),
    [
        pytest.param(read(), read(), id="the same"),
        pytest.param(read(), read(OTHER_FILE), id="another file: VACUUM FULL"),
        pytest.param(read(), read(version="8"), id="another version: SET NOT NULL"),
        pytest.param(read(certain=False).settle(), read(certain=False), id="settled since"),
    ],
)
def test_values_go_on(then: TableFingerprint, now: TableFingerprint) -> None:
    assert following(SAME, then, now) == (KEPT, [])


@pytest.mark.parametrize(
    ("then", "now"),
    [
        pytest.param(read(), read(OTHER_FILE, "8"), id="both"),
        pytest.param(read(certain=False), read(certain=False), id="both in doubt when first read"),
    ],
)
def test_values_may_have_been_rewritten(then: TableFingerprint, now: TableFingerprint) -> None:
    assert following(SAME, then, now) == (ANEW, [ColumnRewrite("values", ("a",), now.columns[2].version)])


def test_what_is_as_it_was_needs_no_settling_of_its_own() -> None:
    """The slot is behind the key of a table that is read, then VACUUM FULL, then described twice."""
    later = read(OTHER_FILE, certain=False).settle_by(read())
    assert (later.file_settled, later.columns[2].settled) == (False, True)
    assert following(SAME, later, read(OTHER_FILE, certain=False).settle_by(later)) == (KEPT, [])
    altered = read(OTHER_FILE, version="8", certain=False).settle_by(read())
    assert not altered.columns[2].settled
    assert following(SAME, altered, read(OTHER_FILE, version="8", certain=False).settle_by(altered))[0] == ANEW
    assert read(certain=False).settle_by(read()).settled


def test_another_type_is_a_rewrite_but_between_texts() -> None:
    number, varchar = form(column("id", 1, 23), column("a", 2, 20)), form(column("id", 1, 23), column("a", 2, 1043))
    assert following(number, read(), read(version="8")) == (ANEW, [ColumnRewrite("type", ("a",), "8")])
    assert following(varchar, read(), read(version="8")) == (KEPT, [])


def test_a_renamed_column_goes_on_and_one_of_its_name_does_not() -> None:
    renamed = form(column("id", 1, 23), column("b", 2))
    assert following(renamed, read(), read(version="8")) == ((*KEPT, ColumnName("b", *NOW)), [])
    readded = form(column("id", 1, 23), column("a", 3))
    now = read()
    now = replace(now, columns={1: now.columns[1], 3: now.columns[2]})
    assert following(readded, read(), now) == (ANEW, [])


def test_a_new_column_is_a_rewrite_when_rows_had_its_default() -> None:
    added = form(*SAME.columns, column("c", 3))
    then, names = read(), (ColumnName("c", *NOW),)
    for file, missing, filled in ((FILE, True, True), (OTHER_FILE, False, True), (OTHER_FILE, False, False)):
        third = ColumnFingerprint("9", settled=True, missing=missing, filled=filled)
        now = replace(read(file), columns={**then.columns, 3: third})
        assert following(added, then, now) == (names, [ColumnRewrite("default", ("c",), "9")])
    plain = replace(read(FILE), columns={**then.columns, 3: ColumnFingerprint("9", True, False, False)})
    assert following(added, then, plain) == (names, [])


def test_another_type_of_a_column_without_its_number_is_a_rewrite() -> None:
    before = first_version(form(column("id", 1, 23), column("a", None)), THEN)
    now = replace(read(), columns={1: read().columns[1]})
    altered = form(column("id", 1, 23), column("a", None, 23))
    assert next_version(before, now, altered, now, NOW)[1] == [ColumnRewrite("type", ("a",), "from 2000 3")]
    in_doubt = [ColumnRewrite("values", ("a",), "from 2000 3")]
    assert next_version(before, now, before, now, NOW)[1] == in_doubt
    assert next_version(before, now, before, None, NOW)[1] == []


def test_a_column_that_may_be_another_one_of_its_name_is_a_rewrite() -> None:
    known = first_version(form(column("id", 1, 23), column("a", 2)), THEN)
    unknown = first_version(form(column("id", 1, 23), column("a", None)), THEN)
    first = replace(read(), columns={1: read().columns[1]})
    assert next_version(known, read(), unknown, first, NOW)[1] == [ColumnRewrite("values", ("a",), "from 2000 3")]
    for settled, expected in ((True, []), (False, [ColumnRewrite("values", ("a",), "9")])):
        now = replace(first, columns={**first.columns, 3: ColumnFingerprint("9", settled, missing=False, filled=False)})
        again = form(column("id", 1, 23), column("a", 3))
        assert next_version(unknown, first, again, now, NOW)[1] == expected


def test_a_default_of_a_column_is_a_rewrite_once_its_number_is_known() -> None:
    of_first = replace(read(), columns={1: read().columns[1]})
    in_doubt, found = next_version(BEFORE, read(), form(column("id", 1, 23), column("c", None)), of_first, NOW)
    assert found == []
    added = form(column("id", 1, 23), column("c", 3))
    for missing, expected in ((True, [ColumnRewrite("default", ("c",), "9")]), (False, [])):
        now = replace(of_first, columns={**of_first.columns, 3: ColumnFingerprint("9", True, missing, filled=False)})
        assert next_version(in_doubt, of_first, added, now, NOW)[1] == expected


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ('{"5": {"1": "x", "2": "y"}}', None),
        ('{"5": {"1": "x", "2": "z"}}', "renamed"),
        ('{"5": {"2": "y", "3": "z"}}', "attributes"),
        (None, None),
    ],
)
def test_attributes_of_a_composite_type_are_other_values(attributes: str | None, kind: str | None) -> None:
    then, now = (
        replace(read(), columns={**read().columns, 2: replace(read().columns[2], attributes=each)})
        for each in ('{"5": {"1": "x", "2": "y"}}', attributes)
    )
    names, found = following(SAME, then, now)
    assert (names, [each.kind for each in found]) == (ANEW if kind == "attributes" else KEPT, [kind] if kind else [])
    assert TableFingerprint.from_json(now.to_json()) == now
    assert [each.kind for each in altered_before(SAME, now)] == []
    later = replace(now, columns={2: replace(now.columns[2], attributes_settled=False)})
    assert [each.kind for each in altered_before(SAME, later)] == ["attributes"]


def test_without_its_number_a_column_begins_anew() -> None:
    unknown, rewritten = form(column("id", 1, 23), column("a", None)), ColumnRewrite("values", ("a",), "from 2000 3")
    assert following(unknown, read(), read()) == (ANEW, [rewritten])


def test_what_an_older_version_stored_is_in_doubt_but_no_rewrite() -> None:
    old = first_version(form(column("id", None, 23), column("a", None)), THEN)
    found, rewritten = next_version(old, None, SAME, read(missing=True), NOW)
    assert (found.columns[-1].names, rewritten) == (ANEW, [])


def test_under_another_root_values_of_the_same_key_are_of_another_row() -> None:
    assert following(replace(SAME, table_oid=5), read(), read()) == (KEPT, [])  # attached: its own rows stay its own
    of_root = replace(BEFORE, table_oid=5)
    found, _ = next_version(of_root, read(), SAME, read(), NOW)
    assert found.columns[-1].names == ANEW


def test_after_a_time_without_publication_values_are_unknown() -> None:
    found, rewritten = next_version(BEFORE, read(), replace(SAME, memberships=(2,)), read(), NOW)
    assert (found.columns[-1].names, rewritten) == (ANEW, [])


def test_names_of_a_try_that_was_cut_off_are_forgotten() -> None:
    later = replace(BEFORE.columns[1], name="b", names=(*KEPT, ColumnName("b", 3000, 0)))
    found, _ = next_version(replace(BEFORE, columns=(BEFORE.columns[0], later)), read(), SAME, read(), NOW)
    assert found.columns[-1].names == KEPT


def test_a_fingerprint_survives_its_json() -> None:
    assert TableFingerprint.from_json(read(missing=True).to_json()) == read(missing=True)


MESSAGE = RelationMessage(
    1, "public", "t", "f", (RelationColumn(True, "b", 25, -1), RelationColumn(True, "a", 25, -1))
)  # a and b have swapped their names since the form before
BEFORE_SWAP = replace(form(column("a", 1), column("b", 2)), replica_identity="f", key_columns=("a",))
SWAPPED_BACK = CatalogTable(
    "public", "t", "f", 1, "public", "t", (CatalogColumn(1, "a", 25, -1), CatalogColumn(2, "b", 25, -1)),
    primary_key=(1,),
)  # fmt: skip


@pytest.mark.parametrize("moved", [True, False])
def test_the_key_goes_by_number_where_names_were_swapped(moved: bool) -> None:
    assert key_columns(MESSAGE, [1, 2], SWAPPED_BACK, BEFORE_SWAP, 1, moved=moved) == ("b",)


def test_a_partitions_key_has_its_roots_order_even_if_the_root_is_gone() -> None:
    message = MESSAGE._replace(replica_identity="d")
    of_root = replace(SWAPPED_BACK, table_oid=5, column_order=("b", "a"))
    assert key_columns(message, [1, 2], of_root, None, 5, moved=False) == ("a", "b")
    past = replace(BEFORE_SWAP, key_columns=("b", "a"))
    assert key_columns(message, [1, 2], SWAPPED_BACK, past, 5, moved=True) == ("a", "b")


def test_a_dropped_partitions_key_goes_by_place_if_names_were_swapped() -> None:
    """The root has the later one first; a third column has taken the name of one of the two."""
    past = replace(form(column("a", 1), column("b", 2), column("c", 3)), key_columns=("c", "a"))
    columns = (
        RelationColumn(True, "a", 25, -1), RelationColumn(False, "c", 25, -1), RelationColumn(True, "b", 25, -1)
    )  # fmt: skip
    message = RelationMessage(1, "public", "t", "d", columns)
    assert key_columns(message, [None] * 3, None, past, 5, moved=True) == ("b", "a")
    other_key = replace(past, key_columns=("b", "a"))  # not by place, then: the key is another one since
    assert key_columns(message, [None] * 3, None, other_key, 5, moved=True) == ("b", "a")


def test_an_earlier_key_serves_a_dropped_table_with_full_identity() -> None:
    by_key = replace(BEFORE_SWAP, replica_identity="d")
    assert key_columns(MESSAGE, [None, None], None, by_key, 1, moved=True) == ("a",)
    assert key_columns(MESSAGE, [1, 2], replace(SWAPPED_BACK, primary_key=()), by_key, 1, moved=True) == ()
    by_index = replace(BEFORE_SWAP, replica_identity="i")
    assert key_columns(MESSAGE, [None, None], None, by_index, 1, moved=True) == ()


@pytest.mark.parametrize("past", [None, BEFORE_SWAP, replace(BEFORE_SWAP, replica_identity="n", key_columns=())])
def test_a_key_rebuilt_with_its_columns_type_is_the_key_since_then(
    past: HistoryVersion | None,
) -> None:
    later = replace(SWAPPED_BACK, primary_key=(2,), primary_later=True)
    as_it_was = MESSAGE._replace(columns=MESSAGE.columns[::-1])
    assert key_columns(as_it_was, [1, 2], later, past, 1, moved=True) == (past.key_columns if past else ())
    for then in RelationColumn(True, "b", 23, -1), RelationColumn(True, "b", 25, 20):
        other_type = MESSAGE._replace(columns=(MESSAGE.columns[1], then))
        assert key_columns(other_type, [1, 2], later, past, 1, moved=True) == ("b",)


def test_a_key_with_doubtful_columns_goes_by_name_unless_swapped() -> None:
    """A column was dropped lately, and a new key has altered its own, so that nothing is certain by number."""
    in_order = MESSAGE._replace(columns=MESSAGE.columns[::-1])
    assert key_columns(in_order, [None, None], SWAPPED_BACK, None, 1, moved=False) == ("a",)
    assert key_columns(in_order, [None, 2], SWAPPED_BACK, BEFORE_SWAP, 1, moved=False) == ("a",)
    assert key_columns(MESSAGE, [None, None], SWAPPED_BACK, None, 1, moved=False) == ()
    dropped = replace(SWAPPED_BACK, columns=(CatalogColumn(1, "a", 25, -1, dropped=True),))
    assert key_columns(in_order, [None, None], dropped, None, 1, moved=False) == ()


def test_a_key_of_which_a_column_is_not_published_is_none() -> None:
    assert key_columns(MESSAGE, [1, 2], replace(SWAPPED_BACK, primary_key=(1, 3)), None, 1, moved=False) == ()
