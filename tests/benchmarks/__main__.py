"""`python -m tests.benchmarks`: speed, memory and latency on one Postgres, beside pg_recvlogical, Debezium, JDBC."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from pipeline.embedded import Server
from pipeline.errors import PipelineError
from tests.benchmarks import (
    clients,
    drains,
    exports,
    fold,
    latency,
    records,
    stream_latency,
    stream_throughput,
)
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.table import Table
from tests.fixtures.postgres import Cluster, free_port

CONSUMERS = (stream_latency.NAME, stream_throughput.NAME, records.NAME, clients.NAME, fold.NAME)
PARTS = ("bulk", "small", "latency", "lake", *CONSUMERS)


def main() -> int:
    """Run the parts one after the other; exit 1 when one of them broke, whatever the figures are."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    figures, broken = Table(judged=arguments.scale >= 1), False
    try:
        with _cluster() as cluster, tempfile.TemporaryDirectory(prefix="wal-bench-java-") as classes:
            machine = describe(cluster)
            print(machine, flush=True)
            for part in arguments.part or PARTS:
                broken = not _run(_part(part, cluster, arguments, Path(classes), figures)) or broken
            print(f"\n{machine}; load at the end {_load()}; scale {arguments.scale:g}, runs {arguments.runs}\n")
            print(figures.markdown())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1 if broken else 0


def describe(cluster: Cluster) -> str:
    """The machine and the server's settings that matter, in one line."""
    with cluster.connect() as connection:
        row = connection.execute("""
            select current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
                current_setting('shared_buffers'), current_setting('max_wal_size')
        """).fetchone()
    assert row is not None
    return (
        f"Postgres {row[0]} (synchronous_commit {row[1]}, fsync {row[2]}, shared_buffers {row[3]}, "
        f"max_wal_size {row[4]}), Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} cores of {_processor()}, load at the start {_load()}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again")
    parser.add_argument(
        "--contender", action="append", default=[], choices=tuple(drains.CONTENDERS), help="only this one; likewise"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes (default 1.0)")
    parser.add_argument("--runs", type=int, default=3, help="drains by each contender (default 3)")
    return parser.parse_args()


def _part(
    part: str, cluster: Cluster, arguments: argparse.Namespace, classes: Path, figures: Table
) -> Callable[[], None]:
    if part == "latency":
        seconds = latency.SECONDS * min(1.0, max(0.1, arguments.scale))
        return lambda: latency.report(cluster, figures, seconds)
    if part == "lake":
        return lambda: exports.report(cluster, figures, arguments.scale, arguments.runs)
    if part in CONSUMERS:
        return _consumers_part(part, cluster, arguments, classes, figures)
    return lambda: drains.report(part, cluster, arguments.scale, arguments.runs, arguments.contender, classes, figures)


def _consumers_part(
    part: str, cluster: Cluster, arguments: argparse.Namespace, classes: Path, figures: Table
) -> Callable[[], None]:
    scale, runs = arguments.scale, arguments.runs
    return {
        stream_latency.NAME: lambda: stream_latency.report(cluster, figures, scale, runs, arguments.contender, classes),
        stream_throughput.NAME: lambda: stream_throughput.report(cluster, figures, scale, runs),
        records.NAME: lambda: records.report(cluster, figures, scale, runs),
        clients.NAME: lambda: clients.report(cluster, figures, scale),
        fold.NAME: lambda: fold.report(cluster, figures, scale, runs),
    }[part]


def _run(part: Callable[[], None]) -> bool:
    """False when it broke; what cannot run here has said so and is no failure."""
    try:
        part()
    except CannotRun as reason:
        print(reason, flush=True)
    except (BenchmarkFailed, PipelineError, psycopg.Error, OSError) as error:
        print(f"broken: {error}", flush=True)
        return False
    return True


@contextmanager
def _cluster() -> Iterator[Cluster]:
    """A Postgres as one would run it, durable, with a TCP port, in a folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="wal-bench-pg-"))
    server = Server(folder / "postgres", port=free_port())
    try:
        server.start()
        yield Cluster(server.dsn("postgres"), server)
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
