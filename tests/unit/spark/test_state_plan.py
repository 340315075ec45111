"""Which files a fold reads, over which version, and what of them under which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lake.changes.files import ChangeFile
from lake.errors import UnclearHistoryError
from lake.states.plan import FoldHistory, FullBackfill, StateColumn, StateVersion, buckets_for, buckets_of, plan
from lake.tables import forms
from lake.tables.file_names import file_names
from lake.tables.forms import LakeTableForm, ReplicationPlace
from lake.tables.source_tables import LinkedTable

SOURCE, DATASET, OID = "s", "public.t", 7


def form(number: int, *columns: str, key: Sequence[str] = ("id",), numbered: bool = True) -> LakeTableForm:
    """A form from lsn `number` on; a column is `name`, `name:attnum` or `name:attnum:type oid`."""
    made = []
    for at, text in enumerate(columns, 1):
        name, attnum, oid = (*text.split(":"), "", "")[:3]
        kind = int(oid or 23)
        known = int(attnum or at) if numbered else None
        made.append(forms.FormColumn(name, known, {23: "int", 20: "bigint", 25: "string"}[kind], kind, -1, kind, None))
    place = ReplicationPlace(0, 0, number, 0)
    return LakeTableForm(number, SOURCE, place, OID, OID, "public", "t", tuple(made), tuple(key))


def file(first: int, last: int, **columns: str) -> ChangeFile:
    """Changes whose seqs are their LSNs."""
    everything: Mapping[str, str] = {"seq": "bigint", **columns}
    return ChangeFile(
        f"{first}.parquet",
        None,
        DATASET,
        1,
        SOURCE,
        0,
        OID,
        1,
        10,
        "",
        first,
        last,
        first,
        0,
        last,
        0,
        everything,
        ["id"],
    )


def version(seq: int, form_id: int, **columns: str) -> StateVersion:
    return StateVersion(seq, DATASET, seq, form_id, columns, 1, 5, [])


def folds(
    of: Sequence[LakeTableForm],
    files: Sequence[ChangeFile],
    bases: Sequence[StateVersion],
    seq: int,
    *backfills: FullBackfill,
) -> list[Any]:
    history = FoldHistory(
        LinkedTable({(SOURCE, 0): OID}, list(of)), file_names(of), ReplicationPlace(0, 0, seq, 0), backfills
    )
    return plan(history, lambda after: [each for each in files if each.last_seq > after], bases, seq)


PLAIN = [form(1, "id", "v")]
FILES = [file(1, 9, id="int", v="int"), file(10, 19, id="int", v="int"), file(20, 29, id="int", v="bigint")]


def test_a_fold_reads_what_its_base_lacks_and_nothing_younger_than_its_seq() -> None:
    [found] = folds(PLAIN, FILES, [version(4, 1), version(9, 1), version(25, 1)], 19)
    assert (found.base.seq, found.after) == (9, 9)
    assert [source.paths for source in found.sources] == [["10.parquet"]]


def test_a_file_over_a_jump_of_the_log_counts_with_all_its_rows() -> None:
    """The seqs that were skipped say nothing of where its rows are."""
    jumped = replace(file(1, 10**15 + 1000, id="int", v="int"), rows=1000)
    [found] = folds(PLAIN, [jumped], [version(10**15, 1)], 10**15 + 1000)
    assert found.rows == 1000


def test_files_with_the_same_columns_are_read_together() -> None:
    [found] = folds(PLAIN, FILES, [], 29)
    assert [source.paths for source in found.sources] == [["1.parquet", "10.parquet"], ["20.parquet"]]


def test_a_table_without_a_key_has_no_state() -> None:
    keyless = form(1, "id", "v", key=())
    assert folds([keyless], FILES, [], 29) == []
    assert folds([*PLAIN, form(20, "id", "v", key=())], FILES, [], 29) == []
    assert len(folds([*PLAIN, form(20, "id", "v", key=())], FILES, [], 19)) == 1


def test_a_renamed_column_is_one_column_and_a_dropped_one_is_none() -> None:
    renamed = [*PLAIN, form(10, "id", "w:2"), form(20, "id", "v:3")]
    [found] = folds(renamed, FILES, [], 29)
    assert found.columns == [StateColumn(0, "id", "int"), StateColumn(2, "v", "int")]
    numbers = {source.paths[0]: [reading.numbers for reading in source.readings] for source in found.sources}
    assert numbers["1.parquet"] == [{"id": 0, "v": 1}]
    assert numbers["20.parquet"] == [{"id": 0, "v": 2}]


def test_a_file_from_before_and_after_ddl_is_read_in_two_ways() -> None:
    [found] = folds([*PLAIN, form(5, "id", "v:3")], FILES, [], 9)
    [source] = found.sources
    assert [(reading.since, reading.until) for reading in source.readings] == [
        (None, ReplicationPlace(0, 0, 5, 0)),
        (ReplicationPlace(0, 0, 5, 0), None),
    ]


def test_another_key_is_another_fold_over_the_one_before() -> None:
    moved = [*PLAIN, form(10, "id", "v", key=("v",))]
    first, second = folds(moved, FILES, [], 29)
    assert [source.paths for source in first.sources] == [["1.parquet"]]
    assert (first.base, first.rekeyed, second.base) == (None, None, None)
    assert second.rekeyed.form is moved[1]
    assert list(second.base_columns) == list(first.columns)
    [found] = folds(moved, FILES, [version(9, 1, id="int", v="int")], 29)
    assert (found.base.seq, found.rekeyed.form) == (9, moved[1])


@pytest.mark.parametrize(
    ("before", "after", "folds_made"), [("id:1:23", "id:1:20", 1), ("id:1:23", "id:1:25", 2), ("id:1", "other:1", 1)]
)
def test_a_key_is_another_where_its_text_is(before: str, after: str, folds_made: int) -> None:
    altered = [form(1, before, "v"), form(10, after, "v", key=(after.split(":")[0],))]
    assert len(folds(altered, FILES, [], 29)) == folds_made


def test_changes_of_an_earlier_key_that_come_late_are_refused() -> None:
    moved = [*PLAIN, form(10, "id", "v", key=("v",))]
    late = [file(30, 31, id="int", v="int"), *FILES]
    old = ChangeFile(**{**vars(late[0]), "first_lsn": 3, "last_lsn": None, "last_idx": None})
    [found] = folds(moved, [old], [version(29, 10, id="int", v="int")], 40)
    assert found.sources[0].readings[0].until == ReplicationPlace(0, 0, 10, 0)
    assert "`pipeline backfill start public.t`" in found.sources[0].readings[0].refused


UNCLEAR = [*PLAIN, form(10, "id", "w", numbered=False)]


def test_columns_that_may_be_others_are_refused_by_name() -> None:
    with pytest.raises(UnclearHistoryError, match=r"public\.t .*\(v, w\).*`pipeline backfill start public\.t`"):
        folds(UNCLEAR, FILES, [], 29)
    assert len(folds(UNCLEAR, FILES, [], 9)) == 1
    assert len(folds(UNCLEAR, FILES, [version(19, 10)], 29)) == 1, "a state has come after that"


def test_a_backfill_is_a_new_beginning_once_it_is_complete() -> None:
    [found] = folds(UNCLEAR, FILES, [version(9, 1)], 29, FullBackfill(15, 25))
    assert (found.base, found.after) == (None, 15)
    with pytest.raises(UnclearHistoryError):
        folds(UNCLEAR, FILES, [version(9, 1)], 24, FullBackfill(15, 25))


def test_a_table_with_changes_elsewhere_begins_with_the_later_backfill() -> None:
    def begins(*bases: StateVersion) -> tuple[int | None, int]:
        history = FoldHistory(
            LinkedTable({(SOURCE, 0): OID}, PLAIN),
            file_names(PLAIN),
            ReplicationPlace(0, 0, 29, 0),
            whole_since=FullBackfill(15, 20),
        )
        [found] = plan(history, lambda after: [each for each in FILES if each.last_seq > after], bases, 29)
        return found.base.seq if found.base else None, found.after

    assert begins() == (None, 15)
    assert begins(version(9, 1), version(19, 1)) == (None, 15), "they have rows that are gone"
    assert begins(version(19, 1), version(20, 1)) == (20, 20)


@pytest.mark.parametrize(("rows", "buckets"), [(0, 1), (250_000, 1), (250_001, 2), (1_000_001, 8)])
def test_buckets_are_made_for_the_rows(rows: int, buckets: int) -> None:
    assert buckets_for(rows) == buckets


@pytest.mark.parametrize(
    ("before", "live", "buckets"),
    [(None, 300_000, 2), ((5, 1), 1_000_000, 1), ((5, 1), 1_000_001, 8), ((5, 16), 0, 16)],
)
def test_buckets_stay_until_the_table_has_grown(before: tuple[int, int] | None, live: int, buckets: int) -> None:
    assert buckets_of(before, live) == buckets
