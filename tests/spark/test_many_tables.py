"""Hundreds of tables: their tasks run beside each other, and what the driver does meanwhile holds nothing up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.fixtures import spark
from tests.fixtures.server import ROOT
from tests.fixtures.small_log import add_inserts, add_table

TABLES = 500
RUN = f"""
import json, sys, time
from lake import ledger
from lake.changes import exporter
from lake.running.cluster import session
from lake.storage.folder import DiskFolder
from lake.folding import current
from pyspark_sequin_events import catalog
from pathlib import Path
from py4j.protocol import Py4JJavaError

dsn, folder = sys.argv[1:]

def spent(spark, since):
    store, stages, found = spark.sparkContext._jsc.sc().statusStore(), since, 0
    while True:
        try:
            found += store.lastStageAttempt(stages).executorRunTime()
        except Py4JJavaError:
            return stages, found / 1000
        stages += 1

with session("local[4]", "many tables") as spark, ledger.open_ledger(dsn) as book, catalog.connect(dsn) as connection:
    spark.range(8).rdd.map(lambda row: row).repartition(4).count()  # four Pythons
    stages, _ = spent(spark, 0)
    lake = exporter.open_lake(book, DiskFolder(Path(folder)), "public.sequin_events")
    head = catalog.head(connection, "public.sequin_events")
    for step in ("changes", "states"):
        began = time.monotonic()
        if step == "changes":
            files = exporter.export(
                spark, lake, connection, dsn, (0, head), run=None, rows_per_file=500_000, report=lambda _: None
            )
            assert len(files) == {TABLES}
        else:
            made = []
            current.fold_all(spark, lake, current.find_outdated(lake), made.append)
            assert len(made) == {TABLES}
        wall = time.monotonic() - began
        stages, tasks = spent(spark, stages)
        print(json.dumps([step, wall, tasks]), flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_four_tasks_at_a_time_take_a_quarter_of_their_sum(database_dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as log:
        for number in range(TABLES):
            add_table(log, f"t{number}", 16384 + number)
            add_inserts(log, 40, f"t{number}", 16384 + number)
        log.execute("vacuum analyze public.sequin_events")
    done = subprocess.run(
        [sys.executable, "-c", RUN, database_dsn, str(tmp_path / "lake")],
        env={**spark.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT / "spark"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(done.stdout)
    spans = [line[1:-1].split(", ") for line in done.stdout.splitlines() if line.startswith("[")]
    assert [step for step, *_ in spans] == ['"changes"', '"states"']
    wall, tasks = (sum(float(span[at]) for span in spans) for at in (1, 2))
    assert wall <= 1.3 * tasks / 4, done.stdout
