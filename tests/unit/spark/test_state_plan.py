"""Which files a fold reads, over which version, and when a table was emptied."""

from __future__ import annotations

from typing import Any

import pytest

from lake.states.plan import Life, StateVersion, behind, buckets_for, buckets_of, emptied_at, plan

DATASET = "public.t"


def export(first: int, last: int, columns: dict[str, str], version: int = 1, key: tuple[str, ...] = ("id",)) -> Any:
    file = {"path": f"{first}.parquet", "dataset": DATASET, "schema": version, "bytes": 10}
    schema = {"columns": {"seq": "bigint", **columns}, "key": list(key)}
    return {"files": [{**file, "first_seq": first, "last_seq": last}], "schemas": {DATASET: {str(version): schema}}}


def version(seq: int, buckets: int = 1, rows: int = 5, oid: int = 7) -> StateVersion:
    return StateVersion(seq, DATASET, seq, 1, {"id": "int"}, buckets, rows, [], 0, oid)


EXPORTS = [export(1, 9, {"id": "int"}), export(10, 19, {"id": "bigint"}), export(20, 29, {"id": "string"}, version=2)]


def test_a_fold_reads_what_its_base_lacks_and_nothing_younger_than_its_seq() -> None:
    found = plan(DATASET, EXPORTS, [version(4), version(25)], 15)
    assert found is not None and found.base is not None
    assert (found.base.seq, found.schema_version, found.columns) == (4, 1, {"id": "bigint"})
    assert [source.paths for source in found.sources] == [["1.parquet"], ["10.parquet"]]


def test_files_with_the_same_columns_are_read_together() -> None:
    found = plan(DATASET, [EXPORTS[0], export(30, 39, {"id": "int"})], [], 39)
    assert found is not None
    assert [source.paths for source in found.sources] == [["1.parquet", "30.parquet"]]


def test_a_table_without_a_key_has_no_state() -> None:
    keyless = [export(1, 9, {"id": "int"}, key=())]
    assert plan(DATASET, keyless, [], 9) is None
    assert behind(keyless, []) == []
    assert plan(DATASET, EXPORTS, [], 0) is None


@pytest.mark.parametrize(("seqs", "wanted"), [((), [DATASET]), ((9, 28), [DATASET]), ((29,), [])])
def test_a_state_is_behind_when_a_change_is_newer(seqs: tuple[int, ...], wanted: list[str]) -> None:
    assert behind(EXPORTS, [version(seq) for seq in seqs]) == wanted


@pytest.mark.parametrize(
    ("lives", "base", "emptied"),
    [
        ([Life(0, 7, 30, 0)], None, 0),
        ([Life(0, 7, 30, 12)], None, 12),
        ([Life(0, 7, 30, 0), Life(0, 8, 40, 0)], None, 30),
        ([Life(0, 7, 30, 0), Life(1, 8, 40, 0)], None, 0),
        ([Life(0, 8, 40, 0)], version(20), 20),
        ([Life(0, 7, 40, 0)], version(20), 0),
        ([Life(1, 8, 40, 0)], version(20), 0),
        ([Life(0, 8, 30, 5), Life(1, 9, 40, 0), Life(1, 10, 50, 45)], version(20), 45),
    ],
)
def test_truncate_and_another_oid_in_the_same_epoch_empty_a_table(
    lives: list[Life], base: StateVersion | None, emptied: int
) -> None:
    assert emptied_at(lives, base) == emptied


@pytest.mark.parametrize(("rows", "buckets"), [(0, 1), (250_000, 1), (250_001, 2), (600_000, 4), (10_000_000, 64)])
def test_buckets_are_a_power_of_two(rows: int, buckets: int) -> None:
    assert buckets_for(rows) == buckets


@pytest.mark.parametrize(
    ("rows", "live", "buckets"), [(5, 9, 2), (2_000_000, 9, 2), (2_000_001, 9, 16), (5, 3_000_000, 16)]
)
def test_a_table_that_has_grown_four_times_gets_more_buckets(rows: int, live: int, buckets: int) -> None:
    assert buckets_of(version(20, buckets=2, rows=rows), live) == buckets
