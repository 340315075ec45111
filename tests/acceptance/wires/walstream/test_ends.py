"""How sessions end: always with an error, within a second of what ends them, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import grpc
import psycopg
import pytest

from tests.fixtures.bare_http2 import Connection, Rust
from tests.fixtures.grpc_place import Place, ids, listening, of, place_of
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("walstream ends")


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of(cluster, tmp_path_factory.mktemp("walstream"), wires="walstream") as made:
        yield made


def test_a_server_that_stops_tells_its_clients_and_they_come_back(place: Place) -> None:
    table = place.table()
    with Rust(place.port, again_seconds=0.2) as rust, place.client() as client:
        rust.printed("Connected")
        place.run(f"insert into {table} values (1)")
        of(client, table, 1)
        rust.printed(f'INSERT public.{table}: {{"id":1}}')
        place.settled()
        asked = time.monotonic()
        place.server.process.terminate()
        assert client.ended() == (grpc.StatusCode.UNAVAILABLE, "the server is stopping; call again")
        ended = time.monotonic() - asked
        assert place.server.process.wait(120) == 0
        assert ended < 10, "within a second, where the machine has one"
        place.run(f"insert into {table} values (2)")
        place.server = place.start(**place.settings)
        rust.printed(f'INSERT public.{table}: {{"id":2}}')
        assert rust.lines.count(f'INSERT public.{table}: {{"id":1}}') == 1, "it was acknowledged"
        assert not rust.has_exited


@pytest.mark.long
def test_clients_that_go_while_their_session_begins_leave_none(place: Place) -> None:
    for number in range(60):
        with Connection(place.port) as connection:
            connection.call()
            time.sleep(number % 6 / 1000)  # in the middle of whatever it does for a new one
    eventually(lambda: place.number("select count(*) from pipeline.walstream_sessions where ended_at is null") == 0, 10)


def test_sessions_end_with_the_pipeline_database_and_continue_with_it(place: Place) -> None:
    table = place.table()
    listening(place.port)
    with Rust(place.port, again_seconds=0.2) as rust, place.client() as client:
        rust.printed("Connected")
        place.log.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        status, words = client.ended()
        assert status == grpc.StatusCode.UNAVAILABLE, words
        place.run(f"insert into {table} values (1)")
        rust.printed(f'INSERT public.{table}: {{"id":1}}')
        assert not rust.has_exited
    eventually(lambda: place.server.get("/readyz").status_code == 200)


@pytest.mark.long
def test_a_database_that_refuses_everybody_is_said_and_nothing_is_lost(place: Place) -> None:
    table = place.table()
    name = place.log.info.dbname
    with psycopg.connect(place.source.info.dsn, autocommit=True) as elsewhere, place.client() as client:
        elsewhere.execute(f"alter database {name} allow_connections false".encode())
        try:
            elsewhere.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
            assert client.ended()[0] == grpc.StatusCode.UNAVAILABLE
            with place.client() as second:
                status, words = second.ended(60)
            assert status == grpc.StatusCode.UNAVAILABLE
            assert not {"host", "dbname", "password"} & set(words.replace("=", " ").split()), "where it is"
        finally:
            elsewhere.execute(f"alter database {name} allow_connections true".encode())
    place.run(f"insert into {table} values (1)")
    place.connect_again()
    eventually(lambda: place.server.get("/readyz").status_code == 200)

    def comes() -> None:
        with place.client() as client:
            assert ids(of(client, table, 1)) == [1]

    eventually(comes, errors=(grpc.RpcError,))


@pytest.mark.long
def test_a_frozen_role_is_killed_and_its_clients_go_on_with_the_next(place: Place) -> None:
    table = place.table()
    with Rust(place.port, again_seconds=0.2) as rust:
        rust.printed("Connected")
        frozen = place.server.child_pid("grpc")
        os.kill(frozen, signal.SIGSTOP)
        place.run(f"insert into {table} values (1)")
        rust.printed(f'INSERT public.{table}: {{"id":1}}')
        assert "grpc is frozen; killed" in place.server.log()
