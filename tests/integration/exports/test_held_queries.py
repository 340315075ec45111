"""A query that takes an hour, while runs replace all that it reads, merge it, and remove what is old enough to go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow.parquet as pq
import pytest

from lake import ledger
from lake.changes.manifest import LakeManifest
from lake.compaction import run as compaction
from lake.folding import current
from lake.storage import replaced_files
from lake.storage.identity import open_for_reading
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake
from tests.fixtures.lake_readers import listed

ORDERS = {"id": "bigint"}
FILES = 6
MINUTES = 10
TIME_PASSES = """
    with files as (update pipeline.export_replaced set replaced_at = replaced_at - %(passed)s
            where replaced_at > '-infinity'),
        versions as (update pipeline.export_states set committed_at = committed_at - %(passed)s,
            superseded_at = superseded_at - %(passed)s),
        commits as (update pipeline.export_iceberg_commits set committed_at = committed_at - %(passed)s),
        merges as (update pipeline.export_compactions set started_at = started_at - %(passed)s,
            finished_at = finished_at - %(passed)s),
        ranges as (update pipeline.exports set committed_at = committed_at - %(passed)s)
    update pipeline.export_iceberg set committed_at = committed_at - %(passed)s
"""
Query = Iterator[list[int]]


def query(files: list[Path]) -> Query:
    """The ids in files that are known when it begins, each of which it opens when it gets there."""
    for file in files:
        yield pq.ParquetFile(file).read(["id"]).column("id").to_pylist()


def queries(lake: IcebergLake) -> dict[str, list[Path]]:
    """The files that readers find now, each in the way that the docs say."""
    tables, head = lake.tables(), json.loads((lake.root / "manifest.json").read_bytes())

    def of_iceberg(name: str) -> list[Path]:
        return [Path(urlsplit(task.file.file_path).path) for task in tables[name].scan().plan_files()]

    return {
        "manifest": [lake.root / path for path in listed(lake.root)],
        "latest": sorted((lake.root / head["current"]["shop.orders"]["folder"]).glob("*.parquet")) * FILES,
        "Iceberg changes": of_iceberg("changes.shop.orders"),
        "Iceberg current": of_iceberg("current.shop.orders") * FILES,
    }


def run(lake: IcebergLake, first: int, keep: float = replaced_files.KEEP) -> None:
    """As `export.py` and `compact.py` do it."""
    current.recover(lake.ledger.lake, keep, keep)
    lake.change("shop.orders", ORDERS, {"id": first})
    lake.state("shop.orders", ORDERS, *({"id": each} for each in range(first + 1)))
    lake.show("shop.orders")
    LakeManifest(lake.ledger.lake).update()
    lake.publish(keep)


def compact(lake: IcebergLake) -> None:
    with ledger.open_ledger(lake.dsn) as book:
        assert list(compaction.compact(open_for_reading(book, lake.ledger.lake.folder), _no_spark, lambda _: None))


def _no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def pass_time(log: psycopg.Connection, interval: str) -> None:
    log.execute(TIME_PASSES.replace("%(passed)s", f"interval '{interval}'").encode())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_query_of_an_hour_reads_what_was_there_when_it_began(database_dsn: str, tmp_path: Path) -> None:
    with iceberg_lake(database_dsn, tmp_path / "lake") as lake, psycopg.connect(database_dsn, autocommit=True) as log:
        for number in range(FILES):
            run(lake, number)
        begun = queries(lake)
        expected = {name: [each for rows in query(files) for each in rows] for name, files in begun.items()}
        assert all(sorted(set(ids)) == list(range(FILES)) for ids in expected.values())
        held = {name: query(files) for name, files in begun.items()}
        seen: dict[str, list[int]] = {name: [] for name in held}
        for number in range(FILES):
            advance(held, seen)
            run(lake, FILES + number)
            if number % 3 == 0:
                compact(lake)
            pass_time(log, f"{MINUTES} minutes")
        advance(held, seen, FILES)
        assert seen == expected
        shown = queries(lake)
        assert not [name for name, files in begun.items() if {*files} & {*shown[name]}], "all of it is replaced by now"

        pass_time(log, "24 hours")
        for number in range(2):  # what Iceberg has no longer the next run removes
            run(lake, 100 + number)
        assert not [file for files in begun.values() for file in files if file.exists()]


def advance(held: dict[str, Query], seen: dict[str, list[int]], steps: int = 1) -> None:
    """Each query reads some more."""
    for name, query in held.items():
        for _ in range(steps):
            seen[name] += next(query, [])
