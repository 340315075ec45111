"""A lake whose log was restored: its changes, states and Iceberg tables are a replay of that log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.fixtures.object_store import BUCKET, CREDENTIALS, object_store
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.small_log import SOURCE, add_inserts, add_table, small_log
from tests.fixtures.waiting_lake import CHANGE, REPLAY
from tests.spark import exporting
from tests.spark.conftest import EVENTS

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM
TABLES = {"orders": 16384, "gone": 16400}
JUMP = 1_000_000


@dataclass
class Place:
    """Where the lake is, and what readers find there by its manifest."""

    url: str
    files: fs.FileSystem
    base: str
    io: dict[str, str]

    def json(self, path: str) -> dict[str, Any]:
        with self.files.open_input_file(f"{self.base}/{path}") as stream:
            found: dict[str, Any] = json.loads(stream.read())
            return found

    def changes(self) -> list[int]:
        head = self.json("manifest.json")
        parts = [self.json(dataset["part"]) for dataset in head["datasets"].values()]
        assert not any(part["before"] for part in parts)
        return sorted(row["seq"] for row in self._rows([file["path"] for part in parts for file in part["files"]]))

    def state(self, table: str) -> set[tuple[str, str]]:
        found = self.json("manifest.json")["current"][f"public.{table}"]
        if "part" in found:
            paths = [file["path"] for file in self.json(found["part"])["files"]]
        else:
            folder = Path(self.base) / f"current/public.{table}/latest"
            paths = [str(path.relative_to(self.base)) for path in folder.glob("*.parquet")]
        return {(str(row["id"]), str(row["state"])) for row in self._rows(paths)}

    def iceberg(self, dsn: str) -> dict[str, list[int]]:
        with psycopg.connect(dsn) as log:
            found = log.execute(
                "select table_namespace || '.' || table_name, metadata_location from pipeline.iceberg_tables"
            ).fetchall()
        tables = {name: StaticTable.from_metadata(at, self.io) for name, at in found}
        return {name: sorted(table.scan().to_arrow()["seq"].to_pylist()) for name, table in tables.items()}

    def _rows(self, paths: list[str]) -> list[dict[str, Any]]:
        at = [f"{self.base}/{path}" for path in paths]
        rows: list[dict[str, Any]] = ds.dataset(at, filesystem=self.files, format="parquet").to_table().to_pylist()
        return rows


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(str(tmp_path / "lake"), fs.LocalFileSystem(), str(tmp_path / "lake"), {})
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        prefix = unique("lake")
        io = {"s3.endpoint": store.direct, "s3.region": CREDENTIALS["AWS_REGION"]}
        yield Place(f"s3://{BUCKET}/{prefix}", store.files, f"{BUCKET}/{prefix}", io)


def change(dsn: str, table: str, first: int, last: int, state: int, action: str = "update") -> None:
    values = {"source": SOURCE, "at": state, "oid": TABLES[table], "table": table}
    with psycopg.connect(dsn, autocommit=True) as log:
        log.execute(CHANGE, {**values, "first": first, "last": last, "action": action})


def require_replay(place: Place, dsn: str, *tables: str) -> None:
    with psycopg.connect(dsn) as log:
        seqs = [seq for (seq,) in log.execute(f"select seq from {EVENTS} order by seq").fetchall()]
        replayed = {
            table: {(row[0], row[1]) for row in log.execute(REPLAY, {"oid": TABLES[table], "seq": 2**62}).fetchall()}
            for table in tables
        }
    assert place.changes() == seqs
    assert {table: place.state(table) for table in tables} == replayed
    assert place.json("manifest.json")["current"].keys() == {f"public.{table}" for table in tables}
    iceberg = place.iceberg(dsn)
    assert iceberg.keys() == {f"{kind}.public.{table}" for kind in ("changes", "current") for table in tables}
    assert sorted(seq for name, each in iceberg.items() if name.startswith("changes.") for seq in each) == seqs
    assert {table: len(iceberg[f"current.public.{table}"]) for table in tables} == {
        table: len(rows) for table, rows in replayed.items()
    }


def test_a_lake_goes_back_with_a_restored_log(
    place: Place, spark: SparkSession, cluster: Cluster, database_dsn: str
) -> None:
    with small_log(database_dsn, 200) as log:
        add_table(log, "gone", TABLES["gone"])
    exporting.run(spark, database_dsn, place.url)
    change(database_dsn, "orders", 0, 9, 70)  # the dump has it, and the lake not yet
    dump = unique("dump")
    cluster.create(dump, str(psycopg.conninfo.conninfo_to_dict(database_dsn)["dbname"]))
    change(database_dsn, "orders", 5, 14, 71)
    change(database_dsn, "orders", 100, 149, 71, "delete")
    with psycopg.connect(database_dsn, autocommit=True) as log:
        add_inserts(log, 20, "gone", TABLES["gone"])
    exporting.run(spark, database_dsn, place.url)
    require_replay(place, database_dsn, "orders", "gone")

    restored = psycopg.conninfo.make_conninfo(database_dsn, dbname=dump)
    with psycopg.connect(restored, autocommit=True) as log:
        log.execute("insert into pipeline.seq_jumps values (%s, 210, %s, 'a test')", [EVENTS, JUMP])
        log.execute("select setval(pg_get_serial_sequence(%s, 'seq'), %s)", [EVENTS, JUMP - 1])
    change(restored, "orders", 8, 17, 72)
    exporting.run(spark, restored, place.url)
    require_replay(place, restored, "orders")
    assert place.changes()[-11:] == [210, *range(JUMP, JUMP + 10)]
    kept = place.json(f".set-aside/{JUMP}/manifest.json")
    assert kept["exported_upto"] == 290
    assert any("changes/public.gone/" in path for path in kept["set_aside"])
