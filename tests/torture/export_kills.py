"""`python -m tests.torture.export_kills`: kill the exporter at 20 moments; then one clean run, and lake equals log."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from psycopg.types.json import Jsonb

from pipeline.postgres import migrations
from tests.fixtures import spark
from tests.fixtures.postgres import Cluster, temporary_server

ROOT = Path(__file__).parents[2]
SOURCE_ID = "5f3e1f0e-0000-4000-8000-000000000000"
TABLES = ("orders", "lines", "notes")
TYPES = {"id": (20, -1, "bigint"), "name": (25, -1, "text"), "amount": (1700, (12 << 16 | 2) + 4, "numeric")}
STEP = 2_400
"""Events that are added before each exporter starts."""
DIRECTED = (
    "before the range is begun",
    "after the range was begun",
    "before the ledger knows the files",
    "between the ledger's list and the first move",
    "when an earlier export was recovered",
    "between two moves",
    "between the last move and the ledger's commit",
    "between the ledger's commit and the manifest",
    "while staging is cleared",
    "after the manifest",
)
FILES = """
    select f.path, f.bytes, f.sha256 from pipeline.export_files f
    join pipeline.exports e on e.id = f.export_id and e.state = 'committed'
"""
DAYS = "changes/*/date=*", "changes/*/schema=*/date=*"
"""The folders in which readers look."""
LIMIT = 600.0
"""Seconds that an exporter may take."""


class Log:
    """A migrated database whose log grows by SQL, and the lake that it is exported to."""

    def __init__(self, dsn: str, lake: Path) -> None:
        self.dsn, self.lake = dsn, lake
        self._written = 0
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'x', 'x')",
                (SOURCE_ID,),
            )
            for number, table in enumerate(TABLES, 1):
                columns = [
                    {
                        "name": name,
                        "type_oid": oid,
                        "type_modifier": modifier,
                        "type_name": type_name,
                        "base_type_oid": oid,
                        "key": name == "id",
                    }
                    for name, (oid, modifier, type_name) in TYPES.items()
                ]
                connection.execute(
                    "insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name,"
                    " table_oid, table_schema, table_name, replica_identity, columns, key_columns, from_lsn)"
                    " values (%s, 0, %s, 'public', %s, %s, 'public', %s, 'd', %s, '{id}', 1)",
                    (SOURCE_ID, number, table, number, table, Jsonb(columns)),
                )
            connection.execute(
                "create table public.log_part partition of public.sequin_events for values from (1) to (100000000)"
            )

    def grow(self, events: int = STEP) -> None:
        """More of the log: three tables, over two dates."""
        names = "array[" + ", ".join(f"'{table}'" for table in TABLES) + "]"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                f"""
                insert into public.sequin_events (source_database_id, commit_lsn, commit_idx, xid, source_table_oid,
                    source_table_schema, source_table_name, record_pk, record, action, committed_at)
                select '{SOURCE_ID}', 1000 + g / 10 * 100, mod(g, 10), g / 10, 1 + mod(g, 3), 'public',
                    ({names})[1 + mod(g, 3)],
                    g::text, jsonb_build_object('id', g, 'name', md5(g::text), 'amount', (g / 100.0)::numeric(12,2)),
                    'insert', timestamptz '2024-01-01 23:59:00+00' + g * interval '50 ms'
                from generate_series(%s::int, %s::int) g""",
                (self._written + 1, self._written + events),
            )
        self._written += events

    def rows(self) -> list[tuple[Any, ...]]:
        """What the lake should hold."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(
                "select seq, source_table_name, commit_lsn, commit_idx, action, record_pk, (record->>'id')::bigint,"
                " record->>'name', (record->>'amount')::numeric(12,2) from public.sequin_events order by seq"
            ).fetchall()

    def visible(self) -> list[tuple[Any, ...]]:
        """What a reader of the folders of days sees, in order of seq; a torn file raises."""
        found = []
        for path in (path for pattern in DAYS for path in self.lake.glob(f"{pattern}/*.parquet")):
            table = path.relative_to(self.lake).parts[1].partition(".")[2]
            columns = ["seq", "commit_lsn", "commit_idx", "action", "record_pk", "id", "name", "amount"]
            read = pq.ParquetFile(path).read(columns=columns).to_pylist()
            found += [(row["seq"], table, *list(row.values())[1:]) for row in read]
        return sorted(found)

    def files(self) -> dict[str, dict[str, Any]]:
        """Files of the committed exports, by path, as the ledger has them."""
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute(FILES).fetchall()
        return {path: {"bytes": size, "sha256": digest} for path, size, digest in rows}

    def listed(self) -> set[str]:
        """The files that the manifest names, as a reader goes through its parts."""
        head = json.loads((self.lake / "manifest.json").read_bytes())
        found: list[str] = []
        for dataset in head["datasets"].values():
            path = self.lake / dataset["part"]
            newest = json.loads(path.read_bytes())
            for part in (newest, *(json.loads(path.with_name(name).read_bytes()) for name in newest["before"])):
                found += [file["path"] for file in part["files"]]
        assert len(found) == len(set(found))
        return set(found)


class Exporter:
    """spark/export.py in its own process group."""

    def __init__(
        self,
        log: Log,
        point: str | None = None,
        *,
        master: str = "local[2]",
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        **process: Any,
    ) -> None:
        """`process`: as whom it runs, as `subprocess.Popen` has it."""
        victim = [str(ROOT / "tests/torture/export_victim.py"), point] if point else [str(ROOT / "spark/export.py")]
        self.begun = threading.Event()
        self.said: list[dict[str, Any]] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            [python, *victim, "--export-dir", str(log.lake), "--master", master, "--rows-per-file", "300"],
            env={**(environment or spark.environment()), "PIPELINE_DATABASE_DSN": log.dsn},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            **process,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(json.loads(line))
                if self.said[-1]["event"] == "spark":
                    self.begun.set()
        self.begun.set()

    def done(self) -> int:
        """Rows in tasks that have ended."""
        return max((said.get("done", 0) for said in self.said), default=0)

    def kill(self) -> None:
        """Driver, JVM and the tasks' Python, all at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Its exit status, when it has ended by itself; nothing of its group is left, also where it takes too long."""
        try:
            self.process.wait(LIMIT)
            self._reader.join(LIMIT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            status = self.process.wait()
            self._errors.close()
        return status


def kill_at(log: Log, point: str) -> None:
    """An exporter that dies at `point`."""
    log.grow()
    exporter = Exporter(log, point)
    status = exporter.end()
    assert status == -signal.SIGKILL, f"{point}: exit {status}, not killed: {exporter.said[-1:]}"
    require_nothing_wrong(log, point)


def kill_somewhere(log: Log, delay: float) -> None:
    """An exporter that is killed this many seconds after its Spark session stands, or has ended before."""
    log.grow()
    exporter = Exporter(log)
    exporter.begun.wait(LIMIT)
    time.sleep(delay)
    exporter.kill()
    exporter.end()
    require_nothing_wrong(log, f"{delay:.2f} s")


def require_nothing_wrong(log: Log, where: str) -> None:
    """Whatever happened: no event twice, none that is not in the log, no torn file."""
    seen = log.visible()
    repeated = [seq for seq, times in Counter(row[0] for row in seen).items() if times > 1]
    assert not repeated, f"{where}: twice in the lake: seq {repeated[:10]}"
    assert not set(seen) - set(log.rows()), f"{where}: not in the log: {sorted(set(seen) - set(log.rows()))[:3]}"


def require_equal(log: Log) -> None:
    """A clean run, and `require_exact`."""
    exporter = Exporter(log)
    assert exporter.end() == 0, exporter.said[-1:]
    require_exact(log)


def require_exact(log: Log) -> None:
    """Lake equals log, ledger equals files, manifest equals ledger, nothing is left over."""
    assert log.visible() == log.rows()
    listed = log.files()
    shown = {f"files/{path.relative_to(log.lake)}" for day in DAYS for path in log.lake.glob(f"{day}/*.parquet")}
    present = {str(path.relative_to(log.lake)) for path in (log.lake / "files").rglob("*.parquet")}
    assert shown == present == set(listed)
    for path, file in listed.items():
        content = (log.lake / path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"]), path
    assert log.listed() == set(listed)
    staging = log.lake / ".staging"
    assert not staging.exists() or not list(staging.iterdir())


@contextmanager
def log_on(cluster: Cluster) -> Iterator[Log]:
    """A log and its lake, gone after the block."""
    with ExitStack() as stack:
        dsn = stack.enter_context(cluster.database("exported"))
        migrations.upgrade(dsn)
        lake = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wal-lake-")))
        yield Log(dsn, lake / "lake")


def main() -> int:
    """Twenty kills, half of them directed, on one lake; exit 1 with the difference when there is one."""
    chance = random.Random(4)
    with temporary_server(18) as cluster, log_on(cluster) as log:
        for number, point in enumerate(DIRECTED, 1):
            kill_at(log, point)
            print(f"{number:2}  {point}", flush=True)
        for number in range(len(DIRECTED) + 1, 2 * len(DIRECTED) + 1):
            delay = chance.uniform(0, 6)
            kill_somewhere(log, delay)
            print(f"{number:2}  {delay:.2f} s after Spark was there", flush=True)
        require_equal(log)
        print(f"20 kills: {len(log.rows()):,} events, each once in {len(log.files())} files; checksums match")
    return 0


if __name__ == "__main__":
    sys.exit(main())
