"""Small files become large ones: each event once for every reader at every moment, whatever is interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from lake import ledger
from lake.changes import exporter, files, manifest, moments
from lake.changes.manifest import LakeManifest
from lake.compaction import ledger as compactions
from lake.compaction import merging, run, switching
from lake.compaction.ledger import CompactionLedger
from lake.compaction.run import CompactionSummary
from lake.errors import ExportRunningError, FileMismatchError
from lake.shown_folders import ShownFolders
from lake.storage import days, replaced_files
from lake.storage.identity import open_for_reading
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake
from tests.fixtures.lake_ledger import all_files
from tests.fixtures.lake_readers import by_glob, by_manifest, listed

ORDERS = {"id": "bigint", "price": "decimal(12,2)", "tags": "array<string>"}


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        yield made


def fill(lake: IcebergLake, runs: int, *, dataset: str = "shop.orders", table: int = 1, **more: Any) -> None:
    """This many exports with two changes each."""
    for number in range(runs):
        row = {"id": number, "price": f"{number}.50", "tags": ["a", None]}
        lake.change(dataset, ORDERS, row, {**row, "id": None}, table=table, **more)
    LakeManifest(lake.ledger.lake).update()


def compact(lake: IcebergLake) -> list[CompactionSummary]:
    """As in a separate process."""

    def no_spark() -> Any:
        raise AssertionError("Spark was asked for")

    with ledger.open_ledger(lake.dsn) as book:
        return list(run.compact(open_for_reading(book, lake.ledger.lake.folder), no_spark, lambda _: None))


def by_iceberg(lake: IcebergLake) -> list[int]:
    tables = [table for name, table in lake.tables().items() if name.startswith("changes.")]
    return sorted(seq for table in tables for seq in table.scan(selected_fields=("seq",)).to_arrow()["seq"].to_pylist())


def require_whole(lake: IcebergLake, *, iceberg: bool = False) -> None:
    """Every reader sees each event once."""
    every = list(range(1, lake.upto + 1))
    assert by_glob(lake.root) == every
    assert by_manifest(lake.root) == every
    assert sorted(listed(lake.root)) == sorted(lake.ledger.committed())
    if iceberg:
        assert by_iceberg(lake) == every


def test_a_closed_day_becomes_one_file(lake: IcebergLake) -> None:
    fill(lake, 20)
    fill(lake, 20, dataset="shop.lines", table=2)
    before = pq.read_schema(lake.root / min(lake.ledger.committed()))
    assert [(made.files_before, made.files_after) for made in compact(lake)] == [(40, 2)]
    require_whole(lake)
    path = next(path for path in lake.ledger.committed() if "orders" in path)
    merged = pq.ParquetFile(lake.root / path)
    assert merged.schema_arrow.equals(before, check_metadata=True)
    assert merged.metadata.row_group(0).sorting_columns
    assert merged.read(["id"]).column("id").to_pylist() == [each for n in range(20) for each in (n, None)]
    assert compact(lake) == [], "nothing is left to do"
    replaced_files.remove(lake.ledger.lake, 0)
    require_whole(lake)
    assert len([file for file in all_files(lake.root) if file.endswith(".parquet") and file.startswith("files/")]) == 2
    assert len(list(lake.root.glob("changes/*/date=*/*.parquet"))) == 2
    assert not list(lake.root.glob("days/*"))


def test_who_reads_keeps_what_was_replaced(lake: IcebergLake) -> None:
    fill(lake, 3)
    day = next(lake.root.glob("changes/*/date=*"))
    opened, named = os.open(day, os.O_RDONLY), listed(lake.root)
    before = sorted(os.listdir(opened))
    [made] = compact(lake)
    assert len(list(day.iterdir())) == 1
    assert all((lake.root / path).exists() for path in named)
    replaced_files.remove(lake.ledger.lake, 3600)
    gone = lake.root / f"days/{made.compaction}" / day.relative_to(lake.root)
    assert sorted(os.listdir(opened)) == sorted(os.listdir(gone)) == before
    os.close(opened)
    replaced_files.remove(lake.ledger.lake, 0)
    assert not gone.exists()


def test_a_day_that_goes_on_is_merged_by_the_hour(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    today = (datetime.now(UTC) + timedelta(hours=12)).date().isoformat()  # so that it does not end meanwhile
    fill(lake, 4, day=today)
    assert compact(lake) == [], "none has waited for an hour"
    hours_ago(lake)
    fill(lake, 1, day=today)
    assert [made.files_before for made in compact(lake)] == [5]
    require_whole(lake)
    hours_ago(lake)
    fill(lake, 15, day=today)
    assert compact(lake) == [], "what was merged waits for the end of the day"
    fill(lake, 1, day=today)
    assert [(made.files_before, made.files_after) for made in compact(lake)] == [(16, 1)]
    monkeypatch.setattr(compactions, "SETTLES", -2 * 86_400)
    assert [(made.files_before, made.files_after) for made in compact(lake)] == [(2, 1)], "the day is over"
    require_whole(lake)


def hours_ago(lake: IcebergLake) -> None:
    """What was exported so far was so a while ago."""
    with psycopg.connect(lake.dsn) as log:
        log.execute("update pipeline.exports set committed_at = committed_at - interval '2 hours'")


def test_iceberg_moves_with_the_ledger(lake: IcebergLake) -> None:
    fill(lake, 5)
    fill(lake, 2, dataset="shop.lines", table=2)
    lake.publish()
    before = lake.tables()["changes.shop.orders"]
    fill(lake, 2)
    assert [made.files_before for made in compact(lake)] == [7], "only what the Iceberg tables have"
    require_whole(lake)
    after = lake.tables()["changes.shop.orders"]
    assert len(list(after.scan().plan_files())) == 1
    assert after.scan().to_arrow().num_rows == 10
    assert before.scan().to_arrow().num_rows == 10, "who has opened it before reads on"
    lake.publish()
    require_whole(lake, iceberg=True)
    assert [made.files_after for made in compact(lake)] == [1]
    require_whole(lake, iceberg=True)
    for _ in range(3):
        fill(lake, 1)
        lake.publish(keep=0)
    replaced_files.remove(lake.ledger.lake, 0)
    require_whole(lake, iceberg=True)
    metadata = {path for path in all_files(lake.root) if path.startswith("iceberg/")}
    assert metadata == lake.metadata_in_use()


def test_full_parts_of_the_manifest_have_a_successor(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "FULL", 3)
    for day in ("2026-11-20", "2026-11-21", "2026-11-22"):
        for _ in range(5):
            fill(lake, 1, day=day)
    old = {path: path.read_bytes() for path in lake.root.glob("manifest/*/*.json")}
    compact(lake)
    require_whole(lake)
    assert {path: path.read_bytes() for path in old} == old, "no part ever changes"
    for _ in range(8):
        fill(lake, 1, day="2026-11-22")
        require_whole(lake)
    compact(lake)
    require_whole(lake)
    replaced_files.remove(lake.ledger.lake, 0)
    require_whole(lake)


def test_late_files_are_merged_with_their_day_only_if_adjacent(lake: IcebergLake) -> None:
    fill(lake, 3, day="2026-11-20")
    compact(lake)
    fill(lake, 1, day="2026-11-20")
    assert [made.files_before for made in compact(lake)] == [2]
    fill(lake, 2, day="2026-11-21")
    fill(lake, 2, day="2026-11-20")
    assert sorted(made.files_before for made in compact(lake)) == [4]
    require_whole(lake)
    found = lake.ledger.lake.ledger.rows("select day::text, first_seq, last_seq from pipeline.export_files order by 2")
    assert [(row["first_seq"], row["last_seq"]) for row in found] == [(1, 8), (9, 12), (13, 16)]


def test_ranges_and_moments_are_found_in_merged_files(lake: IcebergLake) -> None:
    fill(lake, 5)
    lake.ledger.lake.ledger.execute(
        "update pipeline.exports set last_committed_at = '2026-11-25'::timestamptz + upto_seq * interval '1 s'"
    )
    asked = datetime(2026, 11, 25, 0, 0, 5, tzinfo=UTC)
    assert moments.seq_at(lake.ledger.lake, asked) == 5
    compact(lake)
    assert moments.seq_at(lake.ledger.lake, asked) == 5
    of_table = files.ChangeFiles(lake.ledger.lake.ledger, lake.ledger.lake.id).of_tables([1001], [], 4, 6)
    assert [(file.first_seq, file.last_seq, file.last_lsn) for file in of_table] == [(1, 10, 108)]


STEPS: dict[str, tuple[object, str]] = {
    "before anything is written": (run, "_merge_groups"),
    "before the switch": (switching, "switch"),
    "within the transaction": (CompactionLedger, "switch"),
    "after the ledger's switch": (switching, "finish"),
    "before a day's folder": (days, "put"),
    "between two days": (days, "put"),
    "before an exchange": (days, "exchange"),
    "before the old folder is recorded": (ShownFolders, "retire"),
    "before the manifest": (LakeManifest, "update"),
    "before it is done": (CompactionLedger, "mark_done"),
}


def test_it_is_whole_after_a_crash_at_any_step(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, (owner, name) in STEPS.items():
        fill(lake, 2)
        fill(lake, 2, dataset="shop.lines", table=2)
        lake.publish(keep=0)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crashing(getattr(owner, name), 2 if step == "between two days" else 1))
            if step == "before the manifest":  # which is brought up to date before the switch as well
                nothing = dict.fromkeys(("update", "require_same_log"), lambda _: None)
                patch.setattr(exporter, "LakeManifest", lambda _lake, does=nothing: type("None", (), does)())
            with pytest.raises(KeyboardInterrupt):
                compact(lake)
        require_readable(lake)
        with ledger.open_ledger(lake.dsn) as book:
            exporter.open_lake(book, lake.ledger.lake.folder, "public.sequin_events")
        require_whole(lake, iceberg=True)
        compact(lake)
        require_whole(lake)
        assert len(lake.ledger.committed()) == 2, step
    require_whole(lake, iceberg=True)
    there = {path for path in all_files(lake.root) if path.startswith("files/")}
    replaced_files.remove(lake.ledger.lake, 0)
    assert {path for path in there if (lake.root / path).exists()} == lake.ledger.committed()


def crashing(original: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The same, but at the call of that number, and whenever it is called after that."""
    left = calls

    def crash(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            raise KeyboardInterrupt
        return original(*arguments, **more)

    return crash


def require_readable(lake: IcebergLake) -> None:
    """What readers see before anybody has opened the lake again."""
    every = list(range(1, lake.upto + 1))
    assert (by_glob(lake.root), by_manifest(lake.root), by_iceberg(lake)) == (every, every, every)


def test_a_file_that_is_not_what_was_exported_is_named_and_left(lake: IcebergLake) -> None:
    fill(lake, 3)
    fill(lake, 3, dataset="shop.lines", table=2)
    damaged = lake.root / min(path for path in lake.ledger.committed() if "orders" in path)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(
        FileMismatchError, match=r"date=2026-11-25/0+1-0+2\.parquet is not the file that was exported; restore"
    ):
        compact(lake)
    assert len(lake.ledger.committed()) == 4, "the other table was merged"


def test_only_one_at_a_time_and_none_beside_an_export(lake: IcebergLake) -> None:
    fill(lake, 2)
    waited: list[str] = []

    def released(reason: str) -> None:
        waited.append(reason)
        lake.ledger.lake.ledger.unlock(lake.ledger.lake.id)

    lake.ledger.lake.ledger.lock(lake.ledger.lake.id)
    with ledger.open_ledger(lake.dsn) as book, ledger.open_ledger(lake.dsn) as other:
        ours = open_for_reading(book, lake.ledger.lake.folder)
        going = run.compact(ours, lambda: pytest.fail(), released)
        next(going)
        assert len(waited) == 1
        with pytest.raises(ExportRunningError, match="a compaction of this lake is already running"):
            next(run.compact(open_for_reading(other, lake.ledger.lake.folder), lambda: pytest.fail(), released))
        assert list(going) == []
    require_whole(lake)


def test_folders_of_a_version_before_stay_as_they_are(lake: IcebergLake) -> None:
    fill(lake, 3)
    path = min(lake.ledger.committed())
    lake.ledger.lake.ledger.execute(
        "update pipeline.export_files set path = substr(path, 7), day = null where path = $1", (path,)
    )
    (lake.root / path).unlink()
    LakeManifest(lake.ledger.lake).relist(lake.upto)
    assert compact(lake) == []
    require_whole(lake)


def test_without_hard_links_days_have_copies(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    fill(lake, 3)
    require_whole(lake)
    compact(lake)
    replaced_files.remove(lake.ledger.lake, 0)
    require_whole(lake)
    assert not [path for path in lake.root.rglob("*") if path.is_symlink()]
    assert not list((lake.root / ".staging").glob("copy-*"))


def test_row_groups_are_bounded(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.changes.writer.GROUP_ROWS", 4)
    monkeypatch.setattr(merging, "BATCH_ROWS", 2)
    fill(lake, 10)
    compact(lake)
    file = pq.ParquetFile(lake.root / next(iter(lake.ledger.committed())))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [4] * 5
