"""The code of docs/how-to/read-with-*.md reads right while an export is running, and the table as it is afterwards."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fixtures.reading_tables import ReadingTables
from tests.fixtures.waiting import eventually
from tests.spark.conftest import Pipeline
from tests.spark.readers import CHANGES, NOW, READERS, read
from tests.spark.test_state import fold

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once

ROWS = 4000
"""Events, one for each row but for those that change."""
RANGES = 4
READ, CHANGED = 2000, 200
"""Rows that were there before; half as many of those that change are updated, the others deleted."""
HELD = """
    create function public.held() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock_shared(815); return new; end $$;
    create trigger held before insert on pipeline.exports for each row
        when (new.after_seq > 0) execute function public.held();
    select pg_advisory_lock(815)
"""
"""The export goes on behind its first range once the lock is free."""
ORDERS = "insert into shop.orders select n, n / 100.0, to_timestamp(n) from generate_series({}, {}) as n"


@pytest.fixture(scope="module")
def pipeline(pipelines: Callable[..., AbstractContextManager[Pipeline]]) -> Iterator[Pipeline]:
    with pipelines() as made:
        made.source.execute("create schema shop")
        made.source.execute("create table shop.orders (id integer primary key, amount numeric(12,2), at timestamptz)")
        made.source.execute(ORDERS.format(1, READ))
        with ReadingTables(made) as reading:
            reading.finish(reading.begin("shop.orders"))
        made.replicate(
            ORDERS.format(READ + 1, ROWS - CHANGED),
            f"update shop.orders set amount = -1 where id % {READ // 100} = 0 and id <= {READ}",
            f"delete from shop.orders where id % {READ // 100} = 1 and id <= {READ}",
        )
        actions = [event["action"] for event in made.events("shop", "orders", "action")]
        assert (len(actions), actions.count("read")) == (ROWS, READ)
        yield made


@pytest.fixture(scope="module")
def seen(pipeline: Pipeline, spark: SparkSession) -> dict[str, list[list[int]]]:
    """The seqs of each read of each reader: once for each state that an export left while it was running, and then."""
    found: dict[str, list[list[int]]] = defaultdict(list)
    pipeline.log.execute(HELD)
    with ThreadPoolExecutor(1) as threads:
        export = threads.submit(pipeline.export, range_rows=ROWS // RANGES)
        try:
            eventually(lambda: files_in(pipeline), timeout=200)
            running, known = True, 0
            while running:
                running, files = not export.done(), files_in(pipeline)
                if files == known and running:
                    time.sleep(0.02)
                    continue
                known = files
                for reader in READERS:
                    found[reader].append(read(CHANGES, reader, pipeline.folder, spark)["seq"].to_pylist())
                    pipeline.log.execute("select pg_advisory_unlock_all()")
        finally:
            pipeline.log.execute("select pg_advisory_unlock_all()")
        assert len(export.result()) >= RANGES
    fold(pipeline, spark)
    assert len(found["DuckDB"][0]) < ROWS, "the export had ended before the first read"
    return found


def files_in(pipeline: Pipeline) -> int:
    return len(list(pipeline.folder.glob("changes/shop.orders/date=*/*.parquet")))


@pytest.mark.parametrize("reader", READERS)
def test_what_a_reader_sees_only_grows(seen: dict[str, list[list[int]]], pipeline: Pipeline, reader: str) -> None:
    for seqs in seen[reader]:
        assert len(set(seqs)) == len(seqs)
    for before, after in itertools.pairwise(seen[reader]):
        assert set(before) <= set(after)
    assert seen[reader][-1] == [event["seq"] for event in pipeline.events("shop", "orders")]


@pytest.mark.parametrize("reader", READERS)
def test_the_table_as_it_is(seen: object, pipeline: Pipeline, spark: SparkSession, reader: str) -> None:
    found = read(NOW, reader, pipeline.folder, spark).sort_by("id")
    rows = pipeline.source.execute("select id, amount, at from shop.orders order by id").fetchall()
    assert [(row["id"], row["amount"], row["at"]) for row in found.to_pylist()] == rows


def test_a_copy_of_the_lake_is_a_lake(seen: object, pipeline: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", pipeline.folder, tmp_path / "copy"], check=True)
    every = [event["seq"] for event in pipeline.events("shop", "orders")]
    for reader in READERS:
        assert read(CHANGES, reader, tmp_path / "copy", spark)["seq"].to_pylist() == every, reader
        assert read(NOW, reader, tmp_path / "copy", spark).num_rows == ROWS - CHANGED - CHANGED // 2
