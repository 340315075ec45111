"""One Spark session in which ways of writing typed Parquet from the log take turns. Its own process.

python tests/benchmarks/export_contenders.py JSON, with {"dsn", "postmaster", "jdbc_url", "jar", "duckdb", "folder",
"upto", "runs", "only"}; prints one JSON line a run, then one about memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi
from export import MOST_RANGES
from pyspark.sql import DataFrame, SparkSession, functions

from lake import ledger
from lake.changes import exporter, plan
from lake.running.cluster import zip_modules
from lake.storage.folder import DiskFolder
from pyspark_sequin_events import catalog
from tests.benchmarks.processes import tree_cpu_seconds

EVENTS = "public.sequin_events"
TYPES = {
    "id": ("bigint", "int8"),
    "quantity": ("int", "int4"),
    "customer": ("string", "text"),
    "amount": ("decimal(12,2)", "numeric(12,2)"),
    "note": ("string", "text"),
    "ordered_at": ("timestamp", "timestamptz"),
    "details": ("string", "text"),
    "state": ("int", "int4"),
}
"""Of bench_rows: in Spark, in Postgres."""
COMMON = "seq, source_epoch, commit_lsn, commit_idx, action, committed_at"
TYPED = ", ".join(f"(record->>'{name}')::{postgres} as {name}" for name, (_, postgres) in TYPES.items())
SCANNER = f"""
import sys
import duckdb
dsn, to, *extensions = sys.argv[1:]
for extension in extensions:
    duckdb.sql(f"load '{{extension}}'")
duckdb.sql(f"attach '{{dsn}}' as log (type postgres, read_only)")
duckdb.sql(f"copy (select {COMMON}, {TYPED} from log.{EVENTS}) to '{{to}}' (format parquet, compression zstd)")
"""


class Contenders:
    """Each writes every event up to `upto` into an empty folder."""

    def __init__(self, spark: SparkSession, settings: dict[str, Any]) -> None:
        self._spark = spark
        self._dsn, self._url, self._upto = settings["dsn"], settings["jdbc_url"], settings["upto"]
        self._duckdb: list[str] = settings["duckdb"]

    def ours(self, folder: Path) -> None:
        """The change export as `pipeline export run` does it: plan, files, checksums, ledger, manifest."""
        with ledger.open_ledger(self._dsn) as book, catalog.connect(self._dsn) as connection:
            lake = exporter.open_lake(book, DiskFolder(folder), EVENTS)
            for bounds in catalog.ranges(connection, EVENTS, (0, self._upto), exporter.RANGE_ROWS, MOST_RANGES):
                exporter.export(
                    self._spark,
                    lake,
                    connection,
                    self._dsn,
                    bounds,
                    run=None,
                    rows_per_file=plan.ROWS_PER_FILE,
                    report=lambda _: None,
                )

    def jdbc_from_json(self, folder: Path) -> None:
        """Spark's JDBC source reads `record` as text, from_json types it."""
        query = f"select {COMMON}, record::text as record from {EVENTS}"
        schema = ", ".join(f"{name} {spark}" for name, (spark, _) in TYPES.items())
        frame = self._jdbc(query).withColumn("row", functions.from_json("record", schema))
        self._write(frame.select(*COMMON.split(", "), "row.*"), folder)

    def jdbc_typed(self, folder: Path) -> None:
        """Spark's JDBC source, the columns typed in its SQL."""
        self._write(self._jdbc(f"select {COMMON}, {TYPED} from {EVENTS}"), folder)

    def single_process(self, folder: Path) -> None:
        """ADBC, pyarrow, one thread, one file, no Spark."""
        folder.mkdir(parents=True)
        query = f"select {COMMON}, {TYPED} from {EVENTS} where seq > 0 and seq <= {self._upto}"
        with closing(dbapi.connect(self._dsn)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            writer = None
            for batch in cursor.fetch_record_batch():
                columns = [
                    column.storage.cast(pa.decimal128(12, 2))
                    if isinstance(column.type, pa.BaseExtensionType)
                    else column
                    for column in batch.columns
                ]
                table = pa.Table.from_arrays(columns, names=batch.schema.names)
                writer = writer or pq.ParquetWriter(folder / "events.parquet", table.schema, compression="zstd")
                writer.write_table(table)
            if writer:
                writer.close()

    def duckdb(self, folder: Path) -> None:
        """DuckDB's scanner of Postgres, all threads, one file, with the start of its process."""
        folder.mkdir(parents=True)
        program, *extensions = self._duckdb
        subprocess.run(
            [program, "-c", SCANNER, self._dsn.replace("'", "''"), str(folder / "events.parquet"), *extensions],
            check=True,
            stdout=sys.stderr,  # where its bar of progress goes: our own output is read line by line
        )

    def _jdbc(self, query: str) -> DataFrame:
        return (
            self._spark.read.format("jdbc")
            .option("url", self._url)
            .option("driver", "org.postgresql.Driver")
            .option("dbtable", f"({query}) as events")
            .option("partitionColumn", "seq")
            .option("lowerBound", "0")
            .option("upperBound", str(self._upto))
            .option("numPartitions", str(max(2, self._upto // plan.ROWS_PER_FILE)))
            .option("fetchsize", "10000")
            .load()
        )

    def _write(self, frame: DataFrame, folder: Path) -> None:
        frame.write.parquet(str(folder))


def main(settings: dict[str, Any]) -> None:
    """Take turns, so that what the machine does meanwhile falls on all alike."""
    began = time.monotonic()
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.parquet.compression.codec", "zstd").config("spark.jars", settings["jar"] or "")
    spark = builder.getOrCreate()
    spark.sparkContext.addPyFile(zip_modules(Path(settings["folder"])))
    spark.range(1).count()
    print(json.dumps({"start": time.monotonic() - began}), flush=True)
    contenders = Contenders(spark, settings)
    ways: dict[str, Callable[[Path], None]] = {name: getattr(contenders, name) for name in settings["only"]}
    for run in range(settings["runs"] + 1):
        for name, act in ways.items():
            folder = Path(settings["folder"]) / f"{name}-{run}"
            began, cpu = time.monotonic(), _cpu(settings)
            act(folder)
            seconds, cpu = time.monotonic() - began, _cpu(settings) - cpu
            files = [
                path for path in folder.rglob("*.parquet") if "days" not in path.parts
            ]  # those are names of others
            size = sum(path.stat().st_size for path in files)
            rows = sum(pq.read_metadata(path).num_rows for path in files)
            shown = {
                "name": name,
                "run": run,
                "seconds": seconds,
                "cpu": cpu,
                "files": len(files),
                "bytes": size,
                "rows": rows,
            }
            print(json.dumps(shown), flush=True)
            shutil.rmtree(folder)
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    print(json.dumps({"driver_mb": _peak("self"), "jvm_mb": _peak(java)}), flush=True)
    spark.stop()


def _cpu(settings: dict[str, Any]) -> float:
    """CPU seconds so far of this process, those that it has started, and Postgres."""
    return tree_cpu_seconds(os.getpid()) + tree_cpu_seconds(settings["postmaster"])


def _peak(pid: int | str) -> float:
    """Peak resident memory in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
