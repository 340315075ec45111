"""An immediate shutdown of either database beside a running server: it says which is away, stays, and goes on.

That nothing is lost and nothing comes twice then, nor after `kill -9` of any process, show tests/torture/test_seeds.py,
under random load, and tests/torture/test_fault_points.py, at each step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.postgres import SETTINGS, free_port
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long
EVENTS = "select (record ->> 'id')::int from public.sequin_events order by seq"


@pytest.fixture
def own_server(server_directory: Path) -> Callable[[str], EmbeddedServer]:
    """`own_server("a")`: a Postgres that only this test has, with a database of that name, to be stopped."""

    def start(name: str) -> EmbeddedServer:
        server = EmbeddedServer(server_directory.with_name(name), settings=SETTINGS, port=free_port())
        server.start()
        server.create_databases(name)
        return server

    return start


def go_down_and_come_back(postgres: EmbeddedServer, server: Serving, what: str) -> None:
    postgres.stop("immediate")

    def said() -> bool:
        answer = server.get("/readyz")
        assert answer.status_code == 503
        return any(what in reason for reason in answer.json()["reasons"])

    eventually(said, errors=(AssertionError, httpx.TimeoutException))
    assert server.process.poll() is None
    postgres.start()
    server.wait_ready(timeout=40)


def arrive(source_dsn: str, database_dsn: str, number: int) -> None:
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        source.execute("insert into t values (%s)", [number])
        eventually(lambda: log.execute(EVENTS).fetchall() == [(each + 1,) for each in range(number)])


@pytest.mark.parametrize("names", [["both"], ["source", "log"]], ids=["of both at once", "of one, then of the other"])
def test_an_immediate_shutdown(
    names: list[str], own_server: Callable[[str], EmbeddedServer], serve: Callable[..., Serving]
):
    servers = [own_server(name) for name in names]
    source, log = servers[0], servers[-1]
    dsns = source.dsn(names[0]), log.dsn(names[-1])
    with psycopg.connect(dsns[0], autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
    server = serve(source_dsn=dsns[0], database_dsn=dsns[1])
    arrive(*dsns, 1)
    go_down_and_come_back(log, server, "pipeline database")
    arrive(*dsns, 2)
    if source is not log:
        go_down_and_come_back(source, server, "source")
        arrive(*dsns, 3)
