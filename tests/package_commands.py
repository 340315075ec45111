"""Run each command of an installed server once, beside `pipeline serve` whose schedules run each minute.

`python -I package_commands.py` in the server's environment and folder. A command that has nothing to do refuses in one
plain line. The schedules run meanwhile; at the end each must have run, and none may have failed.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from pipeline.cli.main import parser
from pipeline.config.settings import load
from pipeline.postgres.databases import PIPELINE, SOURCE, embedded_server

ELSEWHERE = ("serve", "migrate", "demo", "followers watch")
"""The test runs these otherwise."""
DONE = """
init
settings
status
health --ready
check
psql pipeline -Atc "select count(*) from sequin_events"
routes list
sources list
slots list
slots create spare
slots delete spare --yes
consumers create mailer
consumers list
consumers show mailer
consumers pause mailer
consumers resume mailer
consumers dead-letters mailer
consumers reset mailer
consumers delete mailer
followers add copy --dsn {follower}
backfill start public.orders
backfill list
backfill show 1
dead-letters list
followers list
followers show copy
followers wait copy
followers verify copy
followers pause copy
followers resume copy
followers resync copy public.orders
followers wait copy
followers release copy
export run
sql insert into orders select n, n from generate_series(11, 20) n
export run
export list
export show 1
export compact
export state public.orders --as-of 5 --output as-of-5
verify
verify --content
"""
MAY_REFUSE = """
retention
sources rewrites
sources skip-transaction 0/1
sources adopt --yes
backfill pause 999
backfill resume 999
backfill cancel 999
backfill settle public.orders --keep
dead-letters retry 999
dead-letters discard 999
followers remove copy
followers skip-transaction copy 1
"""
SCHEDULES = {
    "an export": "export_runs where trigger = 'schedule' and state = 'done'",
    "a comparison": "verifications where asked_by = 'schedule'",
    "a sample of lag": "lag_samples",
}
"""Where each schedule leaves that it ran, of those that do not only look. A compaction of two files merges nothing yet,
but starts its program: that it failed would be in the status."""
_PATIENCE = 300.0


def main() -> int:
    """Return 1 if something failed, or a command is in no list."""
    server = embedded_server(load())
    answer = f"http://127.0.0.1:{os.environ['PIPELINE_HTTP_PORT']}/readyz"
    wait("the server", lambda: urllib.request.urlopen(answer, timeout=5).status == 200)
    with (
        psycopg.connect(server.dsn(SOURCE), autocommit=True) as source,
        psycopg.connect(server.dsn(PIPELINE), autocommit=True) as log,
    ):
        source.execute("create table orders (id int primary key, total numeric)")
        source.execute("create database follower")
        published = "select from pg_publication_tables where tablename = 'orders'"
        wait("the publication", lambda: source.execute(published).rowcount)
        source.execute("insert into orders select n, n from generate_series(1, 10) n")
        wrong = [*commands(source, repr(server.dsn("follower"))), *watched(), *lake()]
        # The last `export run` may have taken every row, and a schedule starts no export without new ones.
        source.execute("insert into orders select n, n from generate_series(21, 30) n")
        for what, where in SCHEDULES.items():
            query = f"select from pipeline.{where} limit 1".encode()
            wait(what, lambda query=query: log.execute(query).rowcount)  # type: ignore[misc]
    done = subprocess.run(["pipeline", "status", "--json"], capture_output=True, check=True)
    failed = json.loads(done.stdout)["failed_schedules"]
    wrong += [f"schedule {name} failed: {why}" for name, why in failed.items()]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def lake() -> list[str]:
    """Return what is wrong with the files of changes, and of the current state."""
    exported = Path(os.environ["PIPELINE_DATA_DIR"], "exports")
    dataset = json.loads((exported / "manifest.json").read_text())["datasets"]["public.orders"]
    files = json.loads((exported / dataset["part"]).read_text())["files"] if "part" in dataset else dataset["files"]
    rows = sum(file["rows"] for file in files)
    wrong = [] if rows >= 20 else [f"the lake has {rows} events of 20 rows"]
    return wrong + ([] if [*exported.glob("current/public.orders/**/*.parquet")] else ["the lake has no current state"])


def wait(what: str, act: Callable[[], object]) -> None:
    """Return once it is true."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if act():
                return
        except (OSError, KeyError, ValueError):
            pass
        time.sleep(0.2)
    sys.exit(f"{what} did not come within {_PATIENCE:g} s")


def commands(source: psycopg.Connection, follower: str) -> Iterator[str]:
    """Run each line, and yield what is wrong. After `sql` comes a statement for the source."""
    lines = [line.format(follower=follower) for line in (DONE + MAY_REFUSE).splitlines() if line]
    for each in leaves(parser()):
        if each not in ELSEWHERE and not any(f"{line} ".startswith(f"{each} ") for line in lines):
            yield f"no line runs pipeline {each}"
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "sql":
            source.execute(rest.encode())
            continue
        began = time.monotonic()
        done = subprocess.run(
            ["pipeline", *shlex.split(line)], capture_output=True, text=True, timeout=300, check=False
        )
        says = done.stderr.strip().splitlines()
        print(f"{time.monotonic() - began:5.1f} s, exit {done.returncode}: {line}", *says[-1:], flush=True)
        is_plain = line in MAY_REFUSE.splitlines() and len(says) == 1 and says[0].startswith("pipeline: ")
        if done.returncode and not is_plain:
            yield f"pipeline {line}: exit {done.returncode}: {done.stderr}{done.stdout[-500:]}"


def watched() -> list[str]:
    """Run `followers watch` until it shows something, then end it with Ctrl-C."""
    with subprocess.Popen(["pipeline", "followers", "watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        shows, _, _ = select.select([watch.stdout], [], [], _PATIENCE)
        watch.send_signal(signal.SIGINT)
        _, said = watch.communicate(timeout=60)
    is_well = shows and watch.returncode in (0, 130) and b"Traceback" not in said
    return [] if is_well else [f"pipeline followers watch: exit {watch.returncode}: {said.decode()}"]


def leaves(command: Any, name: str = "") -> Iterator[str]:
    """Yield the names of all commands."""
    for each, below in getattr(command, "commands", {}).items():
        called = f"{name} {each}".strip()
        yield from leaves(below, called) if hasattr(below, "commands") else [called]


if __name__ == "__main__":
    sys.exit(main())
