"""24 sessions that come and go under load: nothing of them stays. WIRE_MINUTES says for how long, ten by itself."""

from __future__ import annotations

import os
import queue
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import grpc
import psycopg
import pytest

from tests.fixtures.background import BackgroundThread
from tests.fixtures.bare_http2 import Connection
from tests.fixtures.grpc_place import Place, place_of
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import own_megabytes
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client

SESSIONS = 24
MINUTES = float(os.environ.get("WIRE_MINUTES", "10"))
POOL = 4
"""Connections, and threads, that the role keeps for a while after it had much to do."""
MORE = 40.0
"""Megabytes that the role's process may have more after all of it than when it had had a few."""
LOST = (grpc.RpcError, queue.Empty, EOFError, OSError)


@dataclass(frozen=True)
class Held:
    """What sessions could leave behind."""

    connections: int
    threads: int
    files: int
    megabytes: float


class Visitor(BackgroundThread):
    """Connects, reads for a moment, acknowledges all or nothing, and leaves or vanishes; again and again."""

    def __init__(self, place: Place, number: int, counts: dict[str, int]) -> None:
        super().__init__()
        self._place = place
        self._random = random.Random(number)
        self._counts = counts

    def work(self) -> None:
        while not self.stopped.is_set():
            with suppress(*LOST):
                self._vanish() if self._random.random() < 0.3 else self._visit()

    def _visit(self) -> None:
        acknowledges = self._random.random() < 0.7
        with Client(self._place.address) as client:
            for _ in range(self._random.randint(1, 300)):
                event = client.next(5)
                self._counts["events"] += 1
                if acknowledges:
                    client.ack(event.lsn)
        self._counts["left"] += 1

    def _vanish(self) -> None:
        """As a process that is killed; it may have read nothing."""
        with Connection(self._place.port, window=1 << self._random.randint(16, 20)) as connection:
            connection.call().connected.wait(5)
            self.stopped.wait(self._random.random())
        self._counts["vanished"] += 1


class Load(BackgroundThread):
    """A hundred commits a second."""

    def __init__(self, dsn: str, table: str) -> None:
        super().__init__()
        self._dsn, self._table = dsn, table

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            while not self.stopped.wait(0.01):
                source.execute(f"insert into {self._table} (note) values (repeat('x', 100))".encode())


@pytest.fixture
def own(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of(cluster, tmp_path_factory.mktemp("many"), wires="walstream", log_level="info") as place:
        yield place


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 600)
def test_nothing_of_them_stays(own: Place) -> None:
    counts = {"left": 0, "vanished": 0, "events": 0}
    table = own.table("id serial primary key, note text")
    with Load(own.source.info.dsn, table):
        _visits(own, counts, 15)
    before = _settled(own)
    with Load(own.source.info.dsn, table):
        _visits(own, counts, 60 * MINUTES)
    after = _settled(own)
    print(f"{MINUTES:g} minutes: {counts}\nbefore {before}\nafter  {after}")
    assert counts["left"] + counts["vanished"] > 60 * MINUTES
    assert after.connections <= before.connections + POOL, "the role's pool grows and shrinks"
    assert after.threads <= before.threads + POOL
    assert after.files <= before.files + 5
    assert after.megabytes <= before.megabytes + MORE
    assert own.server.get("/readyz").status_code == 200


def _visits(place: Place, counts: dict[str, int], seconds: float) -> None:
    with ExitStack() as stack:
        for number in range(SESSIONS):
            stack.enter_context(Visitor(place, number, counts))
        time.sleep(seconds)


def _settled(place: Place) -> Held:
    """Wait until the server waits for no session, which takes a minute, and has rested."""

    def none_is_held() -> None:
        query = "select ended_at is null, count(*) from pipeline.walstream_sessions group by 1"
        assert place.log.execute(query).fetchall() == []

    eventually(none_is_held, 150)
    time.sleep(3)
    query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    role = place.server.child_pid("grpc")
    return Held(
        min(place.number(query) for _ in range(20)),
        len(os.listdir(f"/proc/{role}/task")),
        len(os.listdir(f"/proc/{role}/fd")),
        own_megabytes(role),
    )
