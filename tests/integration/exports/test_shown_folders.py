"""What readers by glob find is real folders and files; one exchange takes a day, or a current state, to others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

from lake import conversion, ledger
from lake.changes import exporter
from lake.changes.manifest import LakeManifest
from lake.folding import current
from lake.storage import replaced_files
from pipeline.config.settings import load
from pipeline.exports import ledger as exports
from pipeline.exports.render import show_exports
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake
from tests.fixtures.lake_readers import by_glob, by_manifest, of_listing
from tests.fixtures.linked_lake import link_folders, symbolic_links
from tests.fixtures.postgres import Cluster
from tests.fixtures.refusing_kernel import with_a_mount, without_exchange
from tests.fixtures.restorable_lake import Restorable, change, compact
from tests.integration.exports.test_set_aside import crashing

ORDERS = {"id": "bigint"}
LATEST = "current/shop.orders/latest"


@pytest.fixture
def lake(database_dsn: str, tmp_path: Path) -> Iterator[IcebergLake]:
    with iceberg_lake(database_dsn, tmp_path / "lake") as made:
        yield made


def fill(lake: IcebergLake, *days: str) -> None:
    """Three exports of each of these days, then the state of the table."""
    for day in days or ("2026-11-25",):
        for _ in range(3):
            lake.change("shop.orders", ORDERS, {"id": lake.upto + 1}, day=day)
    lake.state("shop.orders", ORDERS, *({"id": each + 1} for each in range(lake.upto)))
    lake.show("shop.orders")
    LakeManifest(lake.ledger.lake).update()


def require(lake: IcebergLake) -> None:
    every = list(range(1, lake.upto + 1))
    assert by_glob(lake.root) == by_manifest(lake.root) == every
    assert sorted(of_listing(lake.root / LATEST, "id")) == every


def reopen(lake: IcebergLake) -> None:
    """What an export does first, and last."""
    with ledger.open_ledger(lake.dsn) as book:
        opened = exporter.open_lake(book, lake.ledger.lake.folder, "public.sequin_events")
        current.recover(opened)
        conversion.retire_old_versions(opened)


def files_of_day(lake: IcebergLake, day: str = "2026-11-25") -> int:
    return len(list((lake.root / f"changes/shop.orders/date={day}").iterdir()))


def seqs_by_reader(folder: Path) -> dict[str, list[int]]:
    """The seqs of all files below the folder, as each reader finds them."""
    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

    days = {file.parent for file in folder.rglob("*.parquet")}
    return {
        "DuckDB": [row[0] for row in duckdb.execute(f"select seq from '{folder}/**/*.parquet'").fetchall()],
        "polars": pl.read_parquet(f"{folder}/**/*.parquet")["seq"].to_list(),
        "pyarrow": ds.dataset(str(folder)).to_table(["seq"])["seq"].to_pylist(),
        "pandas": pd.read_parquet(folder, columns=["seq"])["seq"].tolist(),
        "rglob": [seq for day in days for seq in of_listing(day, "seq")],
    }


def test_every_reader_finds_all_below_a_folder_and_so_does_a_copy(lake: IcebergLake, tmp_path: Path) -> None:
    import duckdb

    fill(lake, "2026-11-24", "2026-11-25")
    assert compact(lake) == 6
    fill(lake)
    subprocess.run(["cp", "-r", lake.root, tmp_path / "copy"], check=True)
    for root in (lake.root, tmp_path / "copy"):
        assert symbolic_links(root) == []
        for reader, seqs in seqs_by_reader(root / "changes/shop.orders").items():
            assert sorted(seqs) == list(range(1, lake.upto + 1)), reader
        assert duckdb.execute(f"select count(*) from '{root}/current/**/*.parquet'").fetchall() == [(lake.upto,)]


def test_a_file_system_that_cannot_exchange_keeps_small_files(
    lake: IcebergLake, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(lake)
    assert without_exchange(lambda: compact(lake)) == 3
    assert files_of_day(lake) == 3
    assert len(lake.ledger.committed()) == 1
    without_exchange(lambda: fill(lake))
    assert os.readlink(lake.root / LATEST) == f"../../files/current/shop.orders/v{6:020d}"
    replaced_files.remove(lake.ledger.lake, 0)
    require(lake)
    assert shown_by_list(lake, capsys).startswith("the file system cannot exchange two folders (Invalid argument);")
    without_exchange(lambda: fill(lake))
    without_exchange(lambda: reopen(lake))
    require(lake)

    reopen(lake)
    assert symbolic_links(lake.root) == []
    assert compact(lake) == 7
    assert files_of_day(lake) == 1
    require(lake)
    assert shown_by_list(lake, capsys) == ""


def test_a_folder_that_cannot_be_exchanged_stays_and_is_named(
    lake: IcebergLake, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(lake, "2026-11-24", "2026-11-25")
    day = lake.root / "changes/shop.orders/date=2026-11-24"
    assert with_a_mount(day, lambda: compact(lake)) == 6
    assert (files_of_day(lake, "2026-11-24"), files_of_day(lake)) == (3, 1)
    replaced_files.remove(lake.ledger.lake, 0)
    require(lake)
    reason = "keeps its files: the file system cannot exchange it (Device or resource busy)"
    assert shown_by_list(lake, capsys) == f"changes/shop.orders/date=2026-11-24 {reason}"
    with_a_mount(lake.root / LATEST, lambda: fill(lake, "2026-11-24"))
    assert sorted(of_listing(lake.root / LATEST, "id")) == list(range(1, 7))
    assert LATEST in shown_by_list(lake, capsys)
    reopen(lake)
    assert compact(lake) == 3, "files of another day lie between"
    require(lake)
    assert (files_of_day(lake, "2026-11-24"), shown_by_list(lake, capsys)) == (2, "")


def shown_by_list(lake: IcebergLake, capsys: pytest.CaptureFixture[str]) -> str:
    """What `pipeline export list` says of folders, without the lake's path."""
    config = load(database_dsn=lake.dsn, export_dir=lake.root)
    with psycopg.connect(lake.dsn) as log:
        show_exports(exports.exports(log, 1), [], unexchanged=exports.unexchanged_folders(log, config))
    said = " ".join(capsys.readouterr().out.split())
    return said.partition(str(lake.root))[2].lstrip(":/ ").replace(f" {lake.root}/", "; ")


def test_symbolic_names_in_a_day_that_stays_become_copies(lake: IcebergLake) -> None:
    fill(lake)
    for file in (lake.root / "changes/shop.orders/date=2026-11-25").iterdir():
        file.unlink()
        file.symlink_to(lake.root / "files" / file.relative_to(lake.root))
    without_exchange(lambda: compact(lake))
    replaced_files.remove(lake.ledger.lake, 0)
    require(lake)


def test_a_name_that_no_table_has_any_more_goes_in_one_step(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake)
    listed: list[list[str]] = []
    removing = shutil.rmtree

    def remove(path: Any, *given: Any, **named: Any) -> None:
        listed.append(sorted(os.listdir(lake.root / "current")))
        removing(path, *given, **named)

    monkeypatch.setattr(shutil, "rmtree", remove)
    lake.ledger.lake.folder.remove_all([LATEST])
    assert listed == [["shop.orders"]] and not (lake.root / "current/shop.orders").exists()


def test_a_lake_with_links_is_converted_whatever_ends_it(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run gets a step further than the one before; readers find each event, and each row, once at every moment."""
    fill(lake, "2026-11-24", "2026-11-25")
    link_folders(lake)
    lake.publish()
    versions = [str(path.relative_to(lake.root)) for path in lake.root.glob("current/*/v*")]
    days = [str(path.resolve().relative_to(lake.root)) for path in lake.root.glob("changes/*/date=*")]
    assert len(symbolic_links(lake.root)) == 3

    def crash() -> None:
        raise KeyboardInterrupt

    for steps in count():
        with monkeypatch.context() as patch:
            crashing(patch, steps, crash)
            try:
                reopen(lake)
                break
            except KeyboardInterrupt:
                require(lake)
    assert steps > 8
    require(lake)
    assert symbolic_links(lake.root) == []
    gone = {row["path"] for row in lake.ledger.lake.ledger.rows("select path from pipeline.export_replaced")}
    assert gone >= {*days} and not gone & {*versions}, "the Iceberg tables name files in current"
    assert [path.name for path in lake.root.glob("days/*/*/*/date=*")] == [Path(day).name for day in days]

    lake.publish()
    reopen(lake)
    tables = lake.tables()
    [task] = tables["current.shop.orders"].scan().plan_files()
    assert "/files/current/shop.orders/v" in task.file.file_path
    replaced_files.remove(lake.ledger.lake, 0)
    assert lake.read("current.shop.orders") == [{"id": each} for each in range(1, 7)]
    assert [path.name for path in lake.root.glob("current/shop.orders/*")] == ["latest"]
    assert not list(lake.root.glob("days/*"))
    assert compact(lake) == 6
    require(lake)


def test_links_stay_if_the_file_system_cannot_exchange(lake: IcebergLake) -> None:
    fill(lake)
    link_folders(lake)
    before = symbolic_links(lake.root)
    without_exchange(lambda: reopen(lake))
    assert without_exchange(lambda: compact(lake)) == 3
    without_exchange(lambda: fill(lake))
    replaced_files.remove(lake.ledger.lake, 0)
    assert symbolic_links(lake.root) == before
    require(lake)


def test_days_of_a_restored_log_go_back_by_renames_if_they_must(
    cluster: Cluster, database_dsn: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        restorable = Restorable(cluster, database_dsn, tmp_path / "lake", stack)
        change(restorable.lake, "shop.orders", runs=3)
        restorable.dump()
        assert compact(restorable.lake) == 3
        change(restorable.lake, "shop.orders", day="2026-11-26")
        lake = restorable.restore(6)
        assert without_exchange(lambda: compact(lake)) == 3
        assert by_glob(lake.root) == by_manifest(lake.root) == list(range(1, 7))
        assert len(list(lake.root.glob("changes/*/date=*/*.parquet"))) == 3
