"""`python -m tests.benchmarks`: speed, memory and latency on one Postgres, beside pg_recvlogical, Debezium, JDBC."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from datetime import date
from pathlib import Path

import psycopg

from pipeline.errors import PipelineError
from tests.benchmarks import drains, page, user_page
from tests.benchmarks.errors import BenchmarkFailed, CannotRun
from tests.benchmarks.parts import GROUPS, PARTS, Bench, named
from tests.benchmarks.server import REPOSITORY, durable_server
from tests.benchmarks.table import Table, markdown
from tests.fixtures.postgres import Cluster

DOCS = REPOSITORY / "docs" / "internals"
RUNS = 3


def main() -> int:
    """Run the parts one after the other; exit 1 when one of them broke, whatever the figures are."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    whole = arguments.scale >= 1
    docs = DOCS if whole and arguments.runs >= RUNS and not arguments.contender else None
    figures, parts = Table(judged=whole), named(arguments.part)
    try:
        with durable_server() as cluster, tempfile.TemporaryDirectory(prefix="wal-bench-java-") as classes:
            settings, measured = describe(cluster), f"{date.today()}, {processor()}, {os.getloadavg()[0]:.1f}"
            print(f"{settings}; {measured}", flush=True)
            for part in parts:
                figures.note(part, "measured on, processor, load before", measured)
            bench = Bench(cluster, figures, arguments.scale, arguments.runs, arguments.contender, Path(classes), docs)
            done = [part for part in parts if _run(part, bench)]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(f"\n{settings}; scale {arguments.scale:g}, runs {arguments.runs}\n")
    print(markdown(figures.cells()))
    if docs:
        page.write(docs / "benchmarks.md", f"{settings}.", {part: figures.cells(part) for part in done})
        user_page.write()
    return 0 if len(done) == len(parts) else 1


def describe(cluster: Cluster) -> str:
    """The cores, and the server's settings that matter, in one line."""
    with cluster.connect() as connection:
        row = connection.execute("""
            select current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
                current_setting('shared_buffers'), current_setting('max_wal_size')
        """).fetchone()
    assert row is not None
    return (
        f"Postgres {row[0]} (synchronous_commit {row[1]}, fsync {row[2]}, shared_buffers {row[3]}, "
        f"max_wal_size {row[4]}), Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} cores"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"At full size, with {RUNS} runs or more and all contenders, it writes docs/internals/benchmarks.md.",
    )
    parser.add_argument("--part", action="append", choices=[*PARTS, *GROUPS], help="only this; may be given again")
    parser.add_argument(
        "--contender", action="append", default=[], choices=tuple(drains.CONTENDERS), help="only this one; likewise"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes and times (default 1.0)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"drains by each contender (default {RUNS})")
    return parser.parse_args()


def _run(part: str, bench: Bench) -> bool:
    """False when it broke; what cannot run here has said so and is no failure."""
    try:
        PARTS[part](bench)
    except CannotRun as reason:
        print(reason, flush=True)
    except (BenchmarkFailed, PipelineError, psycopg.Error, OSError) as error:
        print(f"{part} broke: {error}", flush=True)
        return False
    return True


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def processor() -> str:
    """Return the name of the machine's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    sys.exit(main())
