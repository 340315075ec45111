"""A source with a standby, a pipeline database, a follower, and a server on them, with all readers of its log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import httpx
import psycopg

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.failing_over import PHYSICAL, FailoverPair, ask
from tests.fixtures.postgres import SETTINGS, free_port, short_directory
from tests.fixtures.processes import alive
from tests.fixtures.server import COMMAND, Serving, environment, serving
from tests.fixtures.waiting import eventually
from tests.soak.clients import TABLE, Clients

SLOT = "pipeline"
DURABLE = {"fsync": "on", "full_page_writes": "on"}
WAITED_FOR = {"synchronized_standby_slots": PHYSICAL}
"""The log never has what the standby lacks."""
PATIENCE = 300.0
SAME = "select count(*), sum(hashtext(s::text)::bigint) from soak s"
NEWEST = "select coalesce(max(id), 0) from soak"
PENDING = "select count(*) from consumer_records"


class Site:
    """All of it, inside of its block."""

    def __init__(self, folder: Path, minutes: float) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            directory = stack.enter_context(short_directory())
            self.pair = FailoverPair(directory, {**DURABLE, **WAITED_FOR})
            self.log_server = EmbeddedServer(
                directory.with_name("log"), settings={**SETTINGS, **DURABLE}, port=free_port()
            )
            self.log_server.start()
            self.log_server.create_databases("log", "reports")
            with psycopg.connect(self.pair.primary.tcp_dsn("postgres"), autocommit=True) as source:
                source.execute(TABLE)
            self.database_dsn, self.follower_dsn = map(self.log_server.tcp_dsn, ("log", "reports"))
            self._folder = folder
            start = stack.enter_context(serving(folder, self.pair.dsn, self.database_dsn, SLOT))
            alone = {"PYTHONUNBUFFERED": "1"}  # not forked by a process with which it would share memory
            self._settings = {
                "export_schedule": "*/5 * * * *" if minutes >= 30 else "* * * * *",
                "export_dir": folder / "lake",
                "retention": f"{max(120, round(minutes * 10))}s",
                "log_format": "text",
            }
            self.server: Serving = start(variables=alone, **self._settings)
            self._started = time.monotonic()
            self.command("followers", "add", "reports", "--dsn", self.follower_dsn)
            for name, kind in (("sql", "records"), ("http", "records"), ("ws1", "cursor"), ("ws2", "cursor")):
                body = {"name": name, "kind": kind, "start": "beginning"}
                httpx.post(self.server.url("/v1/consumers"), json=body, timeout=60).raise_for_status()
            source_dsn = f"{self.pair.dsn} target_session_attrs=primary"
            self.clients = Clients(source_dsn, self.database_dsn, self.server.port, folder)
            stack.callback(self.clients.kill)
            self.clients.start()
            self.pair.wait_until_synced(SLOT)
            eventually(self.is_followed, PATIENCE)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def command(self, *arguments: str) -> None:
        """Run `pipeline` to its end; raises RuntimeError with what it prints if it fails."""
        given: dict[str, object] = {
            "source_dsn": self.pair.dsn,
            "database_dsn": self.database_dsn,
            "slot": SLOT,
            **self._settings,
        }
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self._folder,
            env=environment(given),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"`pipeline {' '.join(arguments)}` ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr}"
            )

    def minutes(self) -> float:
        """Return for how long the server has run, with the search for the rate."""
        return (time.monotonic() - self._started) / 60

    def newest_seen(self) -> dict[str, int]:
        """Return the newest row that each reader of the log has."""
        newest = {name: int(value.value) for name, value in self.clients.newest.items() if name != "writer"}
        with closing(psycopg.connect(self.follower_dsn, autocommit=True)) as there:
            newest["follower"] = _one(there, NEWEST)
        return newest

    def is_drained(self) -> bool:
        """Return True if every reader has the newest row."""
        newest = ask(self.pair.primary, NEWEST)
        with closing(psycopg.connect(self.database_dsn, autocommit=True)) as log:
            pending = _one(log, PENDING)
        return not pending and set(self.newest_seen().values()) == {newest}

    def is_followed(self) -> bool:
        """Return True if the follower has the rows of the source."""
        dsns = self.follower_dsn, self.pair.primary.tcp_dsn("postgres")
        with ExitStack() as stack:
            there, here = (stack.enter_context(psycopg.connect(dsn, autocommit=True)) for dsn in dsns)
            copied = there.execute("select to_regclass('soak') is not null").fetchone() == (True,)
            return copied and there.execute(SAME).fetchone() == here.execute(SAME).fetchone()

    def roles(self) -> list[str]:
        """Return the roles of the server that have a process."""
        return sorted(role for role in self.server.children() if role != "fork server")

    def kill(self, role: str) -> None:
        """Kill a role's process, and wait for another."""
        pid = self.server.child_pid(role)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
        self.server.child_pid(role)

    def fail_over(self) -> None:
        """Stop the primary, promote its standby, and let the former primary follow."""
        self.pair.primary.stop()
        self.pair.promote()
        self.pair.follow()
        ask(self.pair.standby, "select pg_drop_replication_slot(%s)", SLOT)
        self.pair.wait_until_synced(SLOT)


def _one(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
