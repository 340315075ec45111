"""Which current states wait, and what a day of runs then writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lake.changes.files import ChangeFile
from lake.folding.waiting import PART, SMALL, may_wait
from lake.states.plan import BucketFile, FullBackfill, PlannedFold, StateVersion
from lake.tables.forms import LakeTableForm
from tests.unit.spark.test_state_plan import PLAIN, file, folds, form

ROWS, RUNS = 400_000, 288
COLUMNS = {"id": "int", "v": "int"}


def version(seq: int, rows: int = ROWS, size: int = 4 * SMALL, form_id: int = 1) -> StateVersion:
    """A state in two buckets."""
    files = [BucketFile(f"{number}.parquet", number, rows // 2, size // 2, "") for number in (0, 1)]
    return StateVersion(seq, "public.t", seq, form_id, COLUMNS, 2, rows, files)


def changes(first: int, last: int, rows: int | None = None) -> ChangeFile:
    """A file of changes, as many as seqs unless it says how many."""
    return replace(file(first, last, **COLUMNS), rows=last - first + 1 if rows is None else rows)


def folding(
    newest: StateVersion, *files: ChangeFile, forms: Sequence[LakeTableForm] = PLAIN, seq: int = 2000
) -> list[PlannedFold]:
    return folds(forms, files, [newest], seq)


def test_a_large_table_waits_with_a_few_changes_and_a_small_one_does_not() -> None:
    large, small = version(9), version(9, size=SMALL)
    assert may_wait(folding(large, changes(10, 10)), large)
    assert not may_wait(folding(small, changes(10, 10)), small)
    assert not may_wait(folding(large, changes(10, 10)), None)


def test_it_waits_until_enough_has_changed() -> None:
    newest = version(9, rows=1000 * PART)
    assert may_wait(folding(newest, changes(10, 1008)), newest)
    assert not may_wait(folding(newest, changes(10, 1009)), newest)


def test_of_a_merged_file_only_what_is_new_counts() -> None:
    newest = version(1900, rows=200 * PART)
    assert may_wait(folding(newest, changes(1, 2000)), newest)
    assert not may_wait(folding(replace(newest, seq=1700), changes(1, 2000)), replace(newest, seq=1700))


@pytest.mark.parametrize(
    "forms",
    [
        [*PLAIN, form(10, "id", "w:2")],
        [*PLAIN, form(10, "id", "v", key=("v",))],
        [*PLAIN, replace(form(10, "id", "v"), name="u")],
    ],
    ids=["a column", "the key", "its name"],
)
def test_nothing_waits_with_a_table_that_was_altered(forms: Sequence[LakeTableForm]) -> None:
    newest = version(9)
    assert not may_wait(folding(newest, changes(10, 19), forms=forms), newest)


def test_nothing_waits_that_is_to_be_refused_or_begins_anew() -> None:
    moved = [*PLAIN, form(10, "id", "v", key=("v",))]
    late = replace(file(30, 31, **COLUMNS), first_lsn=3, last_lsn=None, last_idx=None)
    newest = version(29, form_id=10)
    assert not may_wait(folding(newest, late, forms=moved), newest)

    unclear = [*PLAIN, form(10, "id", "w", numbered=False)]
    newest = version(9)
    anew = folds(unclear, [file(10, 29, **COLUMNS)], [newest], 29, FullBackfill(15, 25))
    assert anew[0].base is None and not may_wait(anew, newest)


@pytest.mark.parametrize("changed", [1, 50, 300])
def test_a_day_of_runs_writes_a_table_once_and_its_changes_twenty_times(changed: int) -> None:
    """Rows written beyond the files of changes, in 288 runs; each changes `changed` rows of each bucket."""
    newest, files, written = version(1), [], 0
    for run in range(RUNS):
        seq = 2 + run * changed
        files.append(changes(seq, seq + changed - 1))
        if not may_wait(folding(newest, *files, seq=seq + changed - 1), newest):
            newest, written = replace(version(seq + changed - 1), id=seq), written + ROWS
    assert written <= PART * RUNS * changed
