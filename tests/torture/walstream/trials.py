"""walstream's clients under random writers, deaths and crashes: `python -m tests.torture.walstream --minutes 10`."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from pipeline.config.settings import Config
from tests.fixtures.postgres import Cluster, free_port, temporary_server
from tests.fixtures.small_log import SOURCE, small_log
from tests.fixtures.waiting import eventually
from tests.torture.outcome import Outcome
from tests.torture.walstream.clients import KINDS, Client
from tests.torture.walstream.model import Given, Log
from tests.torture.walstream.role import MUTATIONS

ROOT = Path(__file__).parents[3]
HOLD_SECONDS = 4.0
"""How long the server waits here for a client that has ended."""
ROUND_SECONDS = 12.0
CLIENTS = 6
COMPANIES = (KINDS, ("each", "slow", "twice"), ("each",))
"""Who meets in a round: with one that never acknowledges the position does not move."""
FOR_EVER = 1e9
_INSERT = """
    insert into sequin_events (source_database_id, commit_lsn, commit_idx, xid, source_table_oid, source_table_schema,
        source_table_name, record_pk, record, action, committed_at)
    select %s, %s, s.i, 1, 16384, 'public', 't', s.i::text, jsonb_build_object('n', %s + s.i, 'filling', %s::text), %s,
        now()
    from generate_series(0, %s) s (i) order by s.i returning seq
"""


class Round:
    """One seed, over its own pipeline database."""

    def __init__(self, dsn: str, seed: int, mutation: str | None = None) -> None:
        self.outcome = Outcome(seed)
        self._dsn, self._mutation = dsn, mutation or ""
        self._random = random.Random(seed)
        self._port = free_port()
        self._log = Log()
        self._given: list[Given] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._role: subprocess.Popen[bytes] | None = None

    def play(self, seconds: float) -> Outcome:
        """Run all of it for this long; then one client acknowledges everything, and the position is at the head."""
        with small_log(self._dsn, 0) as log:
            log.execute(
                "create table if not exists sequin_events_small partition of sequin_events"
                " for values from (1) to (100000000)"
            )
            log.execute("select pipeline.create_consumer('walstream', 'cursor')")
            self._start()
            eventually(lambda: socket.create_connection(("127.0.0.1", self._port)).close(), errors=(OSError,))
            writer = threading.Thread(target=self._write)
            kinds, life = self._random.choice(COMPANIES), self._random.choice([4.0, 40.0])
            clients = [self._client(self._random.choice(kinds), life) for _ in range(CLIENTS)]
            try:
                writer.start()
                for client in clients:
                    client.start()
                self._disturb(time.monotonic() + seconds)
            finally:
                self._stopped.set()
                writer.join()
                for client in clients:
                    client.stopped.set()
                for client in clients:
                    client.join(20)
            try:
                if not self.outcome.wrong:
                    self._finish(log)
            finally:
                self._end_role()
        return self.outcome

    def _client(self, kind: str, life: float) -> Client:
        seed, address = self._random.getrandbits(32), f"127.0.0.1:{self._port}"
        return Client(address, kind, self._log, self._begin, self._wrong, seed, HOLD_SECONDS, life)

    def _begin(self, kind: str) -> Given:
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("select position from pipeline.consumers where name = 'walstream'").fetchone()
        assert row is not None
        with self._lock:
            given = Given(kind, row[0], [each for each in self._given[-100:] if each.numbers])
            self._given.append(given)
            self.outcome.counts["sessions"] += 1
        return given

    def _wrong(self, what: str) -> None:
        self.outcome.wrong.append(what)

    def _start(self) -> None:
        given: dict[str, Any] = {"database_dsn": self._dsn, "grpc_port": self._port, "wires": "walstream"}
        config = Config(**{"source_dsn": "host=/nowhere", **given})
        command = [sys.executable, "-m", "tests.torture.walstream.role", config.to_json(), str(HOLD_SECONDS)]
        self._role = subprocess.Popen([*command, self._mutation], cwd=ROOT, stderr=subprocess.DEVNULL)

    def _disturb(self, until: float) -> None:
        """Kill the role, end its sessions at the database, stop it well; until then."""
        while time.monotonic() < until and not self.outcome.wrong:
            time.sleep(max(0.0, min(self._random.uniform(0.5, 3.0), until - time.monotonic())))
            what = self._random.choice(["kill", "terminate", "stop", "nothing", "nothing"])
            self.outcome.counts[what] += 1
            assert self._role is not None
            if what != "nothing":
                self._end_all()
            if what == "terminate":
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    connection.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where application_name like 'pipeline %' and datname = current_database()"
                    )
            elif what != "nothing":
                self._role.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
                self._role.wait(120)
                self._start()

    def _end_all(self) -> None:
        """The server has ended them; a client that is slow learns that once it has read what had been sent."""
        with self._lock:
            for given in self._given:
                given.ended_at = given.ended_at or time.monotonic()

    def _end_role(self) -> None:
        assert self._role is not None
        self._role.kill()
        self._role.wait(120)

    def _write(self) -> None:
        """Transactions of one row, of some, and large ones, as the shuffler adds them."""
        lsn = 1_000
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stopped.is_set():
                size = self._random.choice([1, 1, 1, 2, 5, 30, 700])
                action = self._random.choice(["insert"] * 9 + ["message"])
                lsn += self._random.randrange(1, 50)
                first = len(self._log.events)
                filling = "x" * self._random.choice([1, 10, 2_000])
                with self._lock:  # no event is read before it is known here
                    values = [SOURCE, lsn, first, filling, action, size - 1]
                    rows = connection.execute(_INSERT, values).fetchall()
                    if action == "insert":
                        self._log.add([row[0] for row in rows], lsn)
                connection.execute("select pg_notify('sequin_events', '{}')")
                self.outcome.counts["events"] += size
                time.sleep(self._random.choice([0.0, 0.005, 0.02, 0.1]))

    def _finish(self, log: psycopg.Connection) -> None:
        client = self._client("each", FOR_EVER)
        client.start()
        try:
            self._require_head(log)
        finally:
            client.stopped.set()
            client.join(20)

    def _require_head(self, log: psycopg.Connection) -> None:
        """Once all others are let go, a client that acknowledges everything moves the position to the end."""
        head = self._log.events[-1].seq if self._log.events else 0
        query = "select position from pipeline.consumers where name = 'walstream'"
        try:
            eventually(lambda: (log.execute(query).fetchone() or [0])[0] >= head, HOLD_SECONDS + 60)
        except AssertionError:
            self._wrong(f"the position is {log.execute(query).fetchone()}, and not at the head, {head}")


@contextmanager
def stage(major: int) -> Iterator[Cluster]:
    """A Postgres for rounds."""
    with temporary_server(major) as cluster:
        yield cluster


def play(cluster: Cluster, seed: int, seconds: float, mutation: str | None = None) -> Outcome:
    """One round over a new pipeline database."""
    with cluster.database("events", cluster.template) as dsn:
        return Round(dsn, seed, mutation).play(seconds)


def main() -> int:
    """Rounds for some minutes; with `--mutation`, until it is noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pg", type=int, default=18)
    parser.add_argument("--mutation", choices=[*MUTATIONS, "all"])
    given = parser.parse_args()
    with stage(given.pg) as cluster:
        if given.mutation is None:
            return _rounds(cluster, given.seed, given.minutes)
        names = list(MUTATIONS) if given.mutation == "all" else [given.mutation]
        return sum(_notices(cluster, name, given.seed, given.minutes) for name in names)


def _rounds(cluster: Cluster, seed: int, minutes: float) -> int:
    until, counts = time.monotonic() + 60 * minutes, Counter[str]()
    while time.monotonic() < until:
        outcome = play(cluster, seed, ROUND_SECONDS)
        print(outcome, flush=True)
        counts += outcome.counts
        if outcome.wrong:
            return 1
        seed += 1
    print(json.dumps(counts), f"pid {os.getpid()}")
    return 0


def _notices(cluster: Cluster, name: str, seed: int, minutes: float) -> int:
    began = time.monotonic()
    while time.monotonic() - began < 60 * minutes:
        outcome = play(cluster, seed, ROUND_SECONDS, name)
        if outcome.wrong:
            print(f"{name}: noticed after {time.monotonic() - began:.0f} s: {outcome.wrong[0]}", flush=True)
            return 0
        seed += 1
    print(f"{name}: NOT NOTICED within {minutes:g} minutes", flush=True)
    return 1
