"""The lake: 3 M events to typed Parquet by Spark, ours beside Spark's JDBC source, DuckDB and a single process.

Files of changes alone: no other process folds them into current states. Whole runs are in `lake-runs`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from pipeline.postgres import connections, migrations
from tests.benchmarks import debezium
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.table import Table
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster

EVENTS = 3_000_000
DATABASE = "bench_lake"
SOURCE_ID = "5f3e1f0e-0000-4000-8000-000000000000"
ROOT = Path(__file__).parents[2]
NAMES = {
    "ours": "pipeline export",
    "jdbc_from_json": "Spark JDBC, from_json",
    "jdbc_typed": "Spark JDBC, typed in SQL",
    "single_process": "single process, ADBC and pyarrow",
    "duckdb": "DuckDB, its scanner of Postgres",
}
GOALS = {"jdbc_from_json": 1.4, "jdbc_typed": 1.0, "single_process": 1 / 1.3}
"""How many times their rate ours should reach."""
COLUMNS = (
    ("id", 20, -1, "bigint"),
    ("quantity", 23, -1, "integer"),
    ("customer", 25, -1, "text"),
    ("amount", 1700, (12 << 16 | 2) + 4, "numeric"),
    ("note", 25, -1, "text"),
    ("ordered_at", 1184, -1, "timestamp with time zone"),
    ("details", 3802, -1, "jsonb"),
    ("state", 23, -1, "integer"),
)
"""bench_rows as pipeline.relations has it."""
RECORD = """jsonb_build_object(
    'id', g, 'quantity', g % 1000, 'customer', 'customer ' || g, 'amount', ((g % 10000000) / 100.0)::numeric(12,2),
    'note', md5(g::text) || ' note of ' || g,
    'ordered_at', (timestamptz '2024-01-01 00:00:00+00' + g * interval '1.001 s')::text,
    'details', jsonb_build_object('id', g, 'tags', jsonb_build_array('new', 'web'), 'hash', md5(g::text)),
    'state', g % 7)"""
"""Row number g of bench_rows as the server writes it."""


def report(cluster: Cluster, figures: Table, scale: float, runs: int) -> None:
    """Time them all, then ours alone over four times as many events: the driver's memory must not grow."""
    cluster.drop(DATABASE)
    cluster.create(DATABASE)
    try:
        events = max(10_000, round(EVENTS * scale))
        fill(cluster, events)
        jar = _jdbc_jar()
        left_out = {"duckdb"} if not _duckdb() else set()
        left_out |= {name for name in NAMES if name.startswith("jdbc") and not jar}
        _add(figures, events, _run(cluster, events, runs, [name for name in NAMES if name not in left_out], jar))
        small = _run(cluster, events, 0, ["ours"], jar)["memory"]
        fill(cluster, 4 * events)
        large = _run(cluster, 4 * events, 0, ["ours"], jar)["memory"]
        for what in ("driver_mb", "jvm_mb"):
            name = {"driver_mb": "driver, Python", "jvm_mb": "driver, JVM (executors included)"}[what]
            figures.add("lake", f"{name}: peak MB, {events:,} events", [small[what]])
            figures.add("lake", f"{name}: peak MB, {4 * events:,} events", [large[what]])
    finally:
        cluster.drop(DATABASE)


def fill(cluster: Cluster, events: int) -> None:
    """This many inserts of bench_rows in the log, ten a transaction, as the server would have written them."""
    dsn = cluster.dsn(DATABASE)
    migrations.upgrade(dsn)
    columns = [
        {"name": n, "type_oid": o, "type_modifier": m, "type_name": t, "base_type_oid": o, "key": n == "id"}
        for n, o, m, t in COLUMNS
    ]
    with connections.connect(dsn, "pipeline database") as connection:
        connection.execute("truncate public.sequin_events, pipeline.exports, pipeline.lakes restart identity cascade")
        connection.execute("truncate pipeline.sources cascade")
        connection.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'x', 'x')",
            (SOURCE_ID,),
        )
        connection.execute(
            "insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,"
            " table_schema, table_name, replica_identity, columns, key_columns, from_lsn)"
            " values (%s, 0, 1, 'public', 'bench_rows', 1, 'public', 'bench_rows', 'd', %s, '{id}', 1)",
            (SOURCE_ID, Jsonb(columns)),
        )
        connection.execute(
            "create table if not exists public.bench_events partition of public.sequin_events"
            " for values from (1) to (1000000000)"
        )
        connection.execute(f"""
            insert into public.sequin_events (source_database_id, commit_lsn, commit_idx, xid, source_table_oid,
                source_table_schema, source_table_name, record_pk, record, action, committed_at)
            select '{SOURCE_ID}', 1000000 + g / 10 * 100, g % 10, g / 10, 1, 'public', 'bench_rows', g::text,
                {RECORD},
                'insert', timestamptz '2024-01-01 00:00:00+00' + g * interval '1 ms'
            from generate_series(1, {events}) g
        """)
        connection.execute("vacuum analyze public.sequin_events")
        connection.execute("checkpoint")


def _run(cluster: Cluster, events: int, runs: int, only: list[str], jar: str | None) -> dict[str, Any]:
    dsn = cluster.dsn(DATABASE)
    parts = conninfo_to_dict(cluster.tcp_dsn(DATABASE))
    url = f"jdbc:postgresql://{parts['host']}:{parts['port']}/{DATABASE}?user={parts['user']}"
    found: dict[str, Any] = {"seconds": defaultdict(list), "cpu": defaultdict(list), "bytes": {}, "files": {}}
    with tempfile.TemporaryDirectory(prefix="wal-bench-lake-") as folder:
        settings = {
            "dsn": dsn,
            "postmaster": postmaster(cluster),
            "jdbc_url": url,
            "jar": jar,
            "duckdb": _duckdb(),
            "folder": folder,
            "upto": events,
            "runs": runs,
            "only": only,
        }
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("export_contenders.py")), json.dumps(settings)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'spark'}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for line in child.stdout:
            _take(found, json.loads(line), events)
        if child.wait():
            raise BenchmarkFailed(f"the Spark session ended with exit {child.returncode}")
    return found


def _take(found: dict[str, Any], said: dict[str, Any], events: int) -> None:
    if "start" in said:
        found["start"] = said["start"]
    elif "driver_mb" in said:
        found["memory"] = said
    else:
        if said["rows"] != events:
            raise BenchmarkFailed(f"{said['name']} wrote {said['rows']} rows of {events}")
        print(
            f"lake, run {said['run']}: {NAMES[said['name']]}: {said['seconds']:.2f} s, {said['cpu']:.1f} CPU s",
            flush=True,
        )
        if said["run"]:  # the first warms up
            found["seconds"][said["name"]].append(said["seconds"])
            found["cpu"][said["name"]].append(said["cpu"])
        found["bytes"][said["name"]], found["files"][said["name"]] = said["bytes"], said["files"]


def _add(figures: Table, events: int, found: dict[str, Any]) -> None:
    figures.add("lake", "Spark session, to its first result: s", [found["start"]], "{:.1f}")
    ours = found["seconds"]["ours"]
    for name, seconds in found["seconds"].items():
        figures.add("lake", f"{NAMES[name]}: events/s", [events / each for each in seconds])
        figures.add("lake", f"{NAMES[name]}: MB in {found['files'][name]} files", [found["bytes"][name] / 1e6])
    for name, cpu in found["cpu"].items():
        figures.add("lake", f"{NAMES[name]}: CPU s, Postgres included", cpu, "{:.1f}")
    for name, least in GOALS.items():
        if seconds := found["seconds"].get(name):
            ratios = [theirs / mine for theirs, mine in zip(seconds, ours, strict=True)]
            figures.add("lake", f"pipeline export ÷ {NAMES[name]}", ratios, "{:.2f}", least=round(least, 2))
        else:
            figures.note("lake", NAMES[name], "left out")
    if theirs := found["seconds"].get("duckdb"):
        ratios = [their / mine for their, mine in zip(theirs, ours, strict=True)]
        figures.add("lake", f"pipeline export ÷ {NAMES['duckdb']}", ratios, "{:.2f}")
    else:
        figures.note("lake", NAMES["duckdb"], "left out")
    figures.add("lake", "pipeline export: s", [median(ours)], "{:.1f}")


def _duckdb() -> list[str]:
    """The Python of an environment with DuckDB's scanner of Postgres, and the extension; `make test` makes it."""
    folder = Path(sys.prefix) / "duckdb-iceberg"
    pattern = "lib/python*/site-packages/duckdb_extension_postgres_scanner/**/*.duckdb_extension"
    found = sorted(map(str, folder.glob(pattern)))
    if not found:
        print(f"lake: DuckDB is left out: {folder} has no duckdb-extension-postgres-scanner", flush=True)
    return [str(folder / "bin" / "python"), *found] if found else []


def _jdbc_jar() -> str | None:
    """Postgres's JDBC driver, from among Debezium's jars or where Debian puts it."""
    debian = Path("/usr/share/java/postgresql.jar")
    if debian.exists():
        return str(debian)
    try:
        return next((str(jar) for jar in debezium.jars().glob("postgresql-*.jar")), None)
    except CannotRun as reason:
        print(f"lake: the JDBC contenders are left out: {reason}", flush=True)
        return None
