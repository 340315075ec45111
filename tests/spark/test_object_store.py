"""A lake in a bucket of an unreliable store: exact, nothing listed or renamed, no useless file left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter
from lake.changes.manifest import LakeManifest
from lake.compaction import merging
from lake.compaction import run as compaction
from lake.errors import UnfitTargetError
from lake.folding import as_of, current, engines
from lake.iceberg.ledger import IcebergLedger
from lake.storage import identity
from lake.storage import object_store as storage
from lake.storage.identity import folder_at
from lake.storage.where import ObjectPath
from pipeline.config.settings import load
from pipeline.exports import preflight as check_exports
from pipeline.exports import reach
from pipeline.exports.status import ExportStatus, lake_problem
from tests.fixtures.object_store import BUCKET, CREDENTIALS, ObjectStore, object_store
from tests.fixtures.postgres import unique
from tests.fixtures.small_log import SOURCE, small_log
from tests.spark import exporting

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM
EVENTS = "public.sequin_events"
POINTERS = "select table_namespace || '.' || table_name, metadata_location from pipeline.iceberg_tables"


@dataclass
class Bucketed:
    """A lake with its own prefix, of a log that is in the tests' hands."""

    store: ObjectStore
    dsn: str
    log: psycopg.Connection
    spark: SparkSession
    prefix: str

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    def run(self, keep: float = 3600) -> None:
        """What `export.py` does."""
        exporting.run(self.spark, self.dsn, self.url, keep)

    def compact(self) -> list[tuple[int, int]]:
        """What `compact.py` does: how many files became how many."""
        with ledger.open_ledger(self.dsn) as book:
            lake = identity.open_for_reading(book, folder_at(self.url))
            made = list(compaction.compact(lake, lambda: self.spark, _nothing))
        return [(each.files_before, each.files_after) for each in made]

    def changes(self) -> list[int]:
        """The seqs that a reader of the manifest finds."""
        head = self.manifest("manifest.json")
        paths: list[str] = []
        for dataset in head["datasets"].values():
            newest = self.manifest(dataset["part"])
            before = [f"{dataset['part'].rpartition('/')[0]}/{name}" for name in newest["before"]]
            for part in (newest, *map(self.manifest, before)):
                paths += [file["path"] for file in part["files"]]
        return sorted(self.rows(paths, "seq"))

    def state(self) -> dict[int, Any]:
        """The table as it is, by the manifest."""
        part = self.manifest(self.manifest("manifest.json")["current"]["public.orders"]["part"])
        found = self._dataset([file["path"] for file in part["files"]]).to_table(["id", "state"])
        return dict(zip(found["id"].to_pylist(), found["state"].to_pylist(), strict=True))

    def iceberg(self, name: str) -> list[int]:
        """The seqs of an Iceberg table."""
        io = PyArrowFileIO({"s3.endpoint": self.store.direct, "s3.region": CREDENTIALS["AWS_REGION"]})
        [location] = [at for table, at in self.log.execute(POINTERS).fetchall() if table == name]
        table = StaticTable.from_metadata(location, io.properties)
        return sorted(table.scan().to_arrow()["seq"].to_pylist())

    def manifest(self, path: str) -> dict[str, Any]:
        with self.store.files.open_input_file(f"{BUCKET}/{self.prefix}/{path}") as stream:
            found: dict[str, Any] = json.loads(stream.read())
            return found

    def rows(self, paths: list[str], column: str) -> list[int]:
        found: list[int] = self._dataset(paths).to_table([column])[column].to_pylist()
        return found

    def _dataset(self, paths: list[str]) -> ds.Dataset:
        return ds.dataset(
            [f"{BUCKET}/{self.prefix}/{path}" for path in paths], filesystem=self.store.files, format="parquet"
        )

    def change(self, ids: str, state: int) -> None:
        """Set the state of rows."""
        self.log.execute(
            "insert into public.sequin_events (source_database_id, commit_lsn, commit_idx, xid, source_table_oid,"
            " source_table_schema, source_table_name, record_pk, record, action, committed_at)"
            f" select %s, 9000000 + %s, n, 7, 16384, 'public', 'orders', n::text, jsonb_build_object('id', n,"
            f" 'customer', 'again', 'state', %s::int), 'update', timestamptz '2026-11-21 12:00+00' from {ids} n",
            [SOURCE, state, state],
        )


def _nothing(_: object) -> None:
    return


def broken_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What merged files are uploaded as; the answer to the first is lost."""
    names: list[str] = []

    def upload(local: Path, at: ObjectPath) -> None:
        storage.upload(local, at)
        names.append(at.key)
        if len(names) == 1:
            raise OSError("the connection broke")

    monkeypatch.setattr(merging, "object_store", SimpleNamespace(upload=upload))
    return names


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with object_store() as made:
            patch.setenv("AWS_ENDPOINT_URL", made.endpoint)
            yield made


@pytest.fixture
def bucketed(store: ObjectStore, spark: SparkSession, database_dsn: str) -> Iterator[Bucketed]:
    with small_log(database_dsn, 500) as log:
        yield Bucketed(store, database_dsn, log, spark, unique("lake"))
        store.faults.share = 0.0


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_it_is_exact_though_requests_fail(bucketed: Bucketed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    faults = bucketed.store.faults
    faults.share = 0.12
    faults.requests.clear()
    bucketed.run()
    bucketed.change("generate_series(1, 50)", 70)
    monkeypatch.setattr(engines, "is_small", lambda _: False)  # that of DataFrames
    bucketed.run()
    faults.share = 0.0
    assert len(faults.seen) >= 4, faults.seen
    assert bucketed.changes() == list(range(1, 551))
    assert bucketed.state() == {n: 70 if 1 <= n <= 50 else n % 7 for n in range(500)}
    assert bucketed.iceberg("changes.public.orders") == list(range(1, 551))
    assert bucketed.iceberg("current.public.orders") == [1, *range(52, 551)]
    bucketed.change("generate_series(51, 52)", 71)
    bucketed.run()
    names = broken_once(monkeypatch)
    assert (bucketed.compact(), bucketed.compact()) == ([(2, 1)], []), "two files of a day that is over"
    assert bucketed.changes() == bucketed.iceberg("changes.public.orders") == list(range(1, 553))
    assert len(set(names)) == 2, "an upload that broke may have come, and is never written over"
    assert {*names} <= bucketed.store.objects(bucketed.prefix).keys()
    bucketed.run(keep=0)
    assert {*names} & bucketed.store.objects(bucketed.prefix).keys() == {names[1]}
    assert bucketed.changes() == list(range(1, 553))
    assert not [request for request in faults.requests if "list-type" in request or "prefix=" in request]


@pytest.mark.long
def test_what_a_run_leaves_is_removed_and_the_next_one_is_exact(
    bucketed: Bucketed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, step in (
        (exporter, "publish"),
        (LakeManifest, "_add_parts"),
        (current, "publish"),
        (IcebergLedger, "commit"),
    ):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, step, ended)
            bucketed.run()
    bucketed.run()
    bucketed.change("generate_series(1, 50)", 70)
    bucketed.run()
    for _ in range(3):  # what Iceberg has no longer the next run removes
        bucketed.run(keep=0)
    assert bucketed.changes() == list(range(1, 551))
    assert bucketed.state() == {n: 70 if 1 <= n <= 50 else n % 7 for n in range(500)}
    assert bucketed.iceberg("current.public.orders") == [1, *range(52, 551)]
    held = bucketed.store.objects(f"{bucketed.prefix}/")
    kinds = Counter(key.removeprefix(f"{bucketed.prefix}/").partition("/")[0] for key in held)
    assert kinds["files"] == 2  # a file of each day
    assert kinds["current"] == 1
    assert kinds["manifest"] == 2  # of changes and of the state
    assert bucketed.log.execute("select count(*) from pipeline.export_written").fetchone() == (0,)

    with ledger.open_ledger(bucketed.dsn) as book:
        lake = identity.open_for_reading(book, folder_at(bucketed.url))
        before = as_of.check_request(lake, "public.orders", 500, tmp_path / "state")
        as_of.write_state(bucketed.spark, lake, before)
        with pytest.raises(UnfitTargetError, match="name a folder for the state by --output"):
            as_of.check_request(lake, "public.orders", 500, None)
    assert ds.dataset(tmp_path / "state").to_table(["state"])["state"].to_pylist().count(70) == 0


def test_what_is_wrong_with_a_bucket_is_said_in_one_line(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding(url: str) -> tuple[str, str, str | None]:
        found = next(check_exports.run(load(export_dir=url, export_schedule="off")))
        return found.level, found.text, found.remedy

    assert finding(f"s3://{BUCKET}/new")[0] == "ok"
    assert store.objects("new/") == {}
    level, text, remedy = finding("s3://no-such-bucket/lake")
    assert level == "warning" and text.endswith("there is no such bucket"), text
    assert remedy == "make it, or name another"


def test_status_says_that_a_lake_is_not_in_its_bucket(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://{BUCKET}/gone"

    def problem() -> str | None:
        return lake_problem(load(export_dir=url), ExportStatus("@daily", url, exported_seq=7))

    monkeypatch.setattr(reach, "_LOOK_SECONDS", 60.0)
    store.faults.requests.clear()
    assert problem() == (
        f"{url} has no manifest, but events were exported to it; restore it, or name another PIPELINE_EXPORT_DIR to "
        "export everything again"
    )
    assert store.faults.requests == [f"HEAD /{BUCKET}/gone/manifest.json"]
    with store.files.open_output_stream(f"{BUCKET}/gone/manifest.json") as stream:
        stream.write(b'{"lake": "22222222-0000-0000-0000-000000000000"}')
    assert problem() is None
    monkeypatch.setattr(reach, "_LOOK_SECONDS", 0.001)
    assert problem() == f"{url}: the store has not answered within 0.001 s; correct AWS_ENDPOINT_URL, or start it"
