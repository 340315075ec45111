"""How fast rows are read that were there before: by our server, by COPY into COPY, and by Debezium's snapshot."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from psycopg import Connection

from pipeline.postgres.embedded import wheel_bin_dir
from tests.benchmarks import processes
from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.contenders import LIMIT, Drain
from tests.benchmarks.drains import WORKER_MEGABYTES
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.peers import SNAPSHOT, Debezium
from tests.benchmarks.processes import QUIET_CORES, OtherPrograms
from tests.benchmarks.rows_before import DISK_BYTES, WAL_BYTES, drop_slot, filled, require_all, wait_until_read
from tests.benchmarks.server import DATABASE, serve
from tests.benchmarks.table import Table
from tests.benchmarks.usage import OF_SERVER, Usage, postmaster
from tests.fixtures.postgres import Cluster

NAME, SLOT = "snapshot-rate", "snapshot_rate"
ROWS = 5_000_000
ENDING = 0.3
"""Seconds in which a session has ended whose client has: then its CPU is counted with its parent's."""
OF_DEBEZIUM, OF_COPY = 1.0, 0.6
"""How many times their rates, at least."""
OURS, PLAIN, EVENTS, DEBEZIUM = "pipeline", "COPY pipe, plain rows", "COPY pipe, rows as events", "Debezium"
POSTGRES = "all of Postgres"
_PLAIN = """
    create table copied (like bench_rows including indexes);
    create index on copied (customer collate "C", id);
"""
"""Two indexes, as an events table has them: of one number, and of a text and a number."""
_EVENTS = """
    create table copied (
        seq bigint primary key, source_database_id uuid not null, source_epoch integer not null, commit_lsn bigint,
        commit_idx integer, xid bigint, source_table_oid bigint not null, source_table_schema text not null,
        source_table_name text not null, record_pk text collate "C" not null, record jsonb not null,
        action text not null, committed_at timestamptz not null, inserted_at timestamptz not null default now()
    );
    create index on copied (source_database_id, source_table_oid, record_pk, seq);
"""
_AS_EVENTS = """
    select row_number() over (), '7f3c9d5e-58a1-4f0c-9a53-2d1f6c1f0001'::uuid, 0, 1::bigint, 1, 1::bigint, 16384,
        'public', 'bench_rows', r.id, to_jsonb(r), 'read', now(), now()
    from bench_rows r
"""
_COPIES = {PLAIN: (_PLAIN, "select * from bench_rows"), EVENTS: (_EVENTS, _AS_EVENTS)}


def report(cluster: Cluster, figures: Table, scale: float, runs: int, only: Sequence[str], classes: Path) -> None:
    """Read the same rows by each contender in turn, `runs` times, and add the figures.

    A contender that fails is out; the others go on, and BenchmarkFailed is raised at the end.
    """
    rows = max(1_000, round(ROWS * scale))
    _print_disk(rows)
    found: dict[str, list[Drain]] = {}
    failures: dict[str, str] = {}
    others: list[float] = []
    contenders = _contenders(cluster, rows, only, classes, figures)
    with filled(cluster, rows) as source:
        for run in range(1, runs + 1):
            for name in (name for name in contenders if name not in failures):
                source.execute("checkpoint")
                meter = OtherPrograms(postmaster(cluster))
                try:
                    found.setdefault(name, []).append(contenders[name](source))
                except BenchmarkFailed as error:
                    failures[name] = f"{name}, run {run}: {error}"
                    continue
                others.append(meter.cores())
                _say(f"{NAME}, run {run} of {runs}: {name}", rows, found[name][-1], others[-1])
    _add(rows, {name: drains for name, drains in found.items() if name not in failures}, figures)
    if others:
        figures.add(NAME, "cores that other programs took meanwhile", others, "{:.2f}", below=QUIET_CORES)
    if failures:
        raise BenchmarkFailed(f"{NAME}: {'; '.join(failures.values())}")


def _contenders(
    cluster: Cluster, rows: int, only: Sequence[str], classes: Path, figures: Table
) -> dict[str, Callable[[Connection], Drain]]:
    made: dict[str, Callable[[Connection], Drain]] = {}
    if not only or "pipeline" in only:
        made[OURS] = lambda source: _serve(cluster, source, rows)
    if not only:
        made |= {name: lambda source, name=name: _copy(cluster, source, rows, *_COPIES[name]) for name in _COPIES}  # type: ignore[misc]
    if not only or "debezium" in only:
        try:
            debezium = Debezium(classes)
        except CannotRun as reason:
            print(f"{NAME}: {reason}", flush=True)
            figures.note(NAME, DEBEZIUM, "left out")
        else:
            made[DEBEZIUM] = lambda _: _debezium(cluster, rows, debezium)
    return made


def _serve(cluster: Cluster, source: Connection, rows: int) -> Drain:
    """Clock: from the first range being read until the table is whole: every row is an event, committed and indexed."""
    with serve(cluster, SLOT) as server, cluster.connect(DATABASE) as database:
        server.wait_active(source)
        with Usage(server) as usage:
            seconds = wait_until_read(server, database)
            cpu = usage.cpu()
        require_all(database, rows)
        server.require_steady()
    drop_slot(cluster, SLOT)
    return Drain(seconds, megabytes=usage.megabytes(), cpu=cpu)


def _copy(cluster: Cluster, source: Connection, rows: int, create: str, select: str) -> Drain:
    """Clock: both programs, from their start to the commit."""
    source.execute(f"drop table if exists copied; {create}")
    psql = f"{wheel_bin_dir() / 'psql'} --no-psqlrc --quiet --dbname '{cluster.tcp_dsn(SOURCE_DATABASE)}' --command"
    select = " ".join(select.split()).replace("'", "'\\''")
    pipe = f"{psql} 'copy ({select}) to stdout' | {psql} 'copy copied from stdin'"
    before = processes.tree_cpu_seconds(postmaster(cluster))
    started = time.monotonic()
    with processes.running(["sh", "-c", pipe], stdout=subprocess.DEVNULL) as process:
        process.wait(LIMIT)
        seconds = time.monotonic() - started
    time.sleep(ENDING)
    cpu = {POSTGRES: processes.tree_cpu_seconds(postmaster(cluster)) - before}
    copied = source.execute("select count(*) from copied").fetchone()
    source.execute("drop table copied")
    if copied != (rows,):
        raise BenchmarkFailed(f"{copied} rows were copied; the table has {rows}")
    return Drain(seconds, cpu=cpu)


def _debezium(cluster: Cluster, rows: int, debezium: Debezium) -> Drain:
    """Clock: from its first batch to its last row; the rows are thrown away."""
    before = processes.tree_cpu_seconds(postmaster(cluster))
    try:
        found = debezium.snapshot(cluster, rows, SLOT)
    finally:
        drop_slot(cluster, SLOT)
    found.cpu[POSTGRES] = processes.tree_cpu_seconds(postmaster(cluster)) - before
    return found


def _add(rows: int, found: dict[str, list[Drain]], figures: Table) -> None:
    for name, drains in found.items():
        figures.add(NAME, f"{_shown(name)}: rows/s", [rows / drain.seconds for drain in drains])
    goals = {EVENTS: OF_COPY, DEBEZIUM: OF_DEBEZIUM}
    for name in (name for name in found if name != OURS and OURS in found):
        pairs = zip(found[OURS], found[name], strict=True)
        ratios = [theirs.seconds / mine.seconds for mine, theirs in pairs]
        figures.add(NAME, f"pipeline ÷ {name}", ratios, "{:.2f}", least=goals.get(name))
    for name, drains in found.items():
        prefix = "" if name == OURS else f"{name}: "
        for process in drains[0].megabytes:
            sizes = [drain.megabytes.get(process, 0.0) for drain in drains]
            limit = WORKER_MEGABYTES if process in OF_SERVER else None
            figures.add(NAME, f"{prefix}{process}: peak MB", sizes, below=limit)
        for process in drains[0].cpu:
            per_million = [drain.cpu.get(process, 0.0) / rows * 1e6 for drain in drains]
            figures.add(NAME, f"{prefix}{process}: CPU s per 1 M rows", per_million, "{:.1f}")


def _shown(name: str) -> str:
    threads = SNAPSHOT["snapshot.max.threads"]
    return {
        OURS: "pipeline, to indexed sequin_events",
        DEBEZIUM: f"Debezium, {threads} threads, thrown away",
    }.get(name, name)


def _print_disk(rows: int) -> None:
    needed, free = rows * DISK_BYTES + WAL_BYTES, shutil.disk_usage(tempfile.gettempdir()).free
    print(f"{NAME}: {rows:,} rows; about {needed / 1e9:.0f} GB of disk, of which {free / 1e9:.0f} are free", flush=True)


def _say(where: str, rows: int, drain: Drain, others: float) -> None:
    parts = [f"{rows / drain.seconds:,.0f} rows/s ({drain.seconds:.1f} s)"]
    if drain.warm:
        parts.append(f"{drain.warm:,.0f}/s over the second half")
    if drain.megabytes:
        parts.append("peak " + ", ".join(f"{who} {size:.0f} MB" for who, size in drain.megabytes.items()))
    if drain.cpu:
        each = [f"{who} {seconds / rows * 1e6:.1f}" for who, seconds in drain.cpu.items()]
        parts.append("CPU s per 1 M rows: " + ", ".join(each))
    quiet = "" if others < QUIET_CORES else ": NOT QUIET, repeat it"
    print(f"{where}: {'; '.join(parts)}; other programs took {others:.2f} cores{quiet}", flush=True)
