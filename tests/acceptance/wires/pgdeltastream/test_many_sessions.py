"""Twelve sessions that come and go under load: nothing of them stays. WIRE_MINUTES says for how long, ten by itself."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import httpx
import psycopg
import pytest

from tests.fixtures.background import BackgroundThread
from tests.fixtures.delta_stream import LOST, Client
from tests.fixtures.processes import own_megabytes
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

SESSIONS = 12
MINUTES = float(os.environ.get("WIRE_MINUTES", "10"))
IDLE = 4
"""Seconds after which an unused session is removed."""
POOL = 4
"""Connections, and threads, that the API keeps for a while after it had much to do."""
MORE = 25.0
"""Megabytes that the API's process may have more after all of it than when it had had a few."""


@dataclass(frozen=True)
class Held:
    """What sessions could leave behind."""

    slots: int
    walsenders: int
    source_connections: int
    log_connections: int
    threads: int
    files: int
    megabytes: float


class Visitor(BackgroundThread):
    """Opens a session, reads a page, streams for a moment, and goes without a word; again and again."""

    def __init__(self, port: int, number: int, counts: dict[str, int]) -> None:
        super().__init__()
        self._client = Client(port)
        self._random = random.Random(number)
        self._counts = counts

    def work(self) -> None:
        with self._client.http:
            while not self.stopped.is_set():
                with suppress(*LOST, OSError, httpx.TransportError):
                    self._visit()

    def _visit(self) -> None:
        answer = self._client.http.get("/v1/init")
        if answer.status_code != 200:
            self._counts["refused"] += 1
            self.stopped.wait(0.3)
            return
        slot = answer.json()["slotName"]
        self._counts["made"] += 1
        if self._random.random() < 0.7:
            self._client.page("load", slotName=slot, limit=500)
        with self._client.stream(slot) as line:
            for _ in range(self._random.randint(1, 40)):
                frame = line.next(5)
                self._counts["frames"] += 1
                if self._random.random() < 0.5:
                    line.ack(frame["nextlsn"])
            if self._random.random() < 0.5:
                line.drop()


class Load(BackgroundThread):
    """Two hundred commits a second."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            while not self.stopped.wait(0.005):
                source.execute("insert into load (note) values (repeat('x', 100))")


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table load (id serial primary key, note text)")
        yield connection


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 300)
def test_nothing_of_them_stays(
    source: psycopg.Connection, source_dsn: str, database_dsn: str, serve: Callable[..., Serving]
) -> None:
    settings = {"wires": "pgdeltastream", "sessions_max": SESSIONS, "sessions_idle": f"{IDLE}s", "snapshot": "never"}
    server = serve(**settings)
    counts = {"made": 0, "refused": 0, "frames": 0}
    with psycopg.connect(database_dsn, autocommit=True) as log, ExitStack() as stack:
        stack.enter_context(Load(source_dsn))
        _visits(server, counts, 15)
        before = eventually(lambda: _settled(source, log, server), 60)
        _visits(server, counts, 60 * MINUTES)
        after = eventually(lambda: _settled(source, log, server), 60)
    print(f"{MINUTES:g} minutes: {counts}\nbefore {before}\nafter  {after}")
    assert counts["made"] > 10 * MINUTES
    assert (after.slots, after.walsenders) == (before.slots, before.walsenders)
    assert after.source_connections <= before.source_connections
    assert after.log_connections <= before.log_connections + POOL, "the API's pool grows and shrinks"
    assert after.threads <= before.threads + POOL
    assert after.files <= before.files + 3
    assert after.megabytes <= before.megabytes + MORE
    assert "Traceback" not in server.log()
    assert server.get("/readyz").status_code == 200


def _visits(server: Serving, counts: dict[str, int], seconds: float) -> None:
    with ExitStack() as stack:
        for number in range(SESSIONS):
            stack.enter_context(Visitor(server.port, number, counts))
        threading.Event().wait(seconds)


def _settled(source: psycopg.Connection, log: psycopg.Connection, server: Serving) -> Held:
    """Once all sessions are gone and it has rested."""
    assert log.execute("select from pipeline.sessions where state <> 'ended'").rowcount == 0
    time.sleep(3)
    queries = (
        "select count(*) from pg_replication_slots",
        "select count(*) from pg_stat_replication",
        "select count(*) from pg_stat_activity where datname = current_database()",
    )
    # The leader looks at sessions now and then, over a connection of a moment; the pool shrinks after a while.
    slots, walsenders, connections = (min(_count(source, query) for _ in range(20)) for query in queries)
    api = server.child_pid("api")
    return Held(
        slots,
        walsenders,
        connections,
        _count(log, queries[2]),
        len(os.listdir(f"/proc/{api}/task")),
        len(os.listdir(f"/proc/{api}/fd")),
        own_megabytes(api),
    )


def _count(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
