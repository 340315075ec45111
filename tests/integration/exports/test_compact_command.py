"""Compactions as the schedule starts them: a process only where something is small, beside exports that wait for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from lake import ledger as lake_ledger
from lake.changes.manifest import LakeManifest
from lake.errors import ExportRunningError
from pipeline.config.settings import Config, load
from pipeline.exports import job
from pipeline.exports.job import COMPACTION
from pipeline.server import schedule
from tests.fixtures.iceberg_lake import IcebergLake, iceberg_lake
from tests.fixtures.lake_readers import by_glob, by_manifest


@pytest.fixture
def config(tmp_path: Path, database_dsn: str) -> Config:
    return load(data_dir=tmp_path / "data", database_dsn=database_dsn, spark_master="local[2]")


@pytest.fixture
def lake(config: Config, database_dsn: str) -> Iterator[IcebergLake]:
    assert isinstance(config.exports, Path)
    with iceberg_lake(database_dsn, config.exports) as made:
        yield made


def test_a_process_is_started_where_something_is_small(
    lake: IcebergLake, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        lake.change("shop.orders", {"id": "bigint"}, {"id": number})
    LakeManifest(lake.ledger.lake).update()
    with caplog.at_level(logging.INFO):
        schedule.compact(config, lambda: False)
    [line] = [record for record in caplog.records if record.message == "small files merged"]
    assert (line.__dict__["before"], line.__dict__["after"]) == (3, 1)
    assert by_glob(lake.root) == by_manifest(lake.root) == [1, 2, 3]
    [log] = (config.data_dir / "logs").iterdir()
    said = log.read_text()
    assert '"event": "compacted"' in said
    assert '"event": "spark"' not in said, "so little needs no JVM"
    log.unlink()
    schedule.compact(config, lambda: False)
    assert not list((config.data_dir / "logs").iterdir()), "nothing is small any more"


def test_an_export_waits_for_a_compaction_that_is_being_published(lake: IcebergLake, config: Config) -> None:
    lake.change("shop.orders", {"id": "bigint"}, {"id": 1})
    LakeManifest(lake.ledger.lake).update()
    lake.ledger.lake.ledger.store_folded_upto(lake.ledger.lake.id, 1)
    lock = "select pg_advisory_lock(hashtextextended('pipeline lake ' || %s, 0))"
    told: list[str] = []
    with closing(psycopg.connect(lake.dsn, application_name=COMPACTION, autocommit=True)) as other:
        other.execute(lock, [str(lake.ledger.lake.id)])

        def waits(event: object) -> None:
            told.append(str(event))
            other.execute("select pg_advisory_unlock_all()")

        assert job.export(config, "command", waits, lambda: False).run is None
        assert len(told) == 1, told
        other.execute(lock, [str(lake.ledger.lake.id)])
        with pytest.MonkeyPatch.context() as patch:
            # Its own clock: other threads wait by that of the process.
            sleep = {"sleep": lambda _: other.execute("select pg_advisory_unlock_all()")}
            patch.setattr("lake.ledger.time", SimpleNamespace(**{**vars(time), **sleep}))
            with lake_ledger.open_ledger(lake.dsn) as book:
                book.lock(lake.ledger.lake.id)
    with closing(psycopg.connect(lake.dsn, autocommit=True)) as other:
        other.execute(lock, [str(lake.ledger.lake.id)])
        with lake_ledger.open_ledger(lake.dsn) as book, pytest.raises(ExportRunningError):
            book.lock(lake.ledger.lake.id)
