"""What `status` knows of walstream's sessions: those of living processes, and those that the server waits for."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pipeline.operate.preflight import check
from pipeline.wires.walstream import status
from pipeline.wires.walstream.status import WalstreamStatus
from tests.fixtures.postgres import Cluster
from tests.fixtures.rpc import Rpc
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.streaming import announce
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client


@pytest.fixture
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made:
        yield made


@pytest.fixture
def log(dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(dsn, 20) as connection:
        yield connection


def test_sessions_with_what_they_owe_and_those_that_are_waited_for(log: psycopg.Connection, dsn: str) -> None:
    with Rpc(dsn, wires="walstream") as rpc:

        def now() -> WalstreamStatus:
            return status.read(rpc.config, log)

        assert now() == WalstreamStatus(served=True)
        eventually(
            lambda: [each for each in check.check_ports(rpc.config, log, away=False) if "gRPC" in each.text] == []
        )
        # Its clients get what comes after that.
        eventually(lambda: log.execute("select from pipeline.consumers where name = 'walstream'").rowcount == 1)
        with Client(rpc.address).connected() as client:
            add_inserts(log, 30)
            announce(log)
            client.take(30)
            eventually(lambda: [each.unacknowledged for each in now().sessions] == [30])
            (there,) = now().sessions
            row = log.execute("select max(seq) from sequin_events").fetchone()
            assert row == (there.sent_seq,)
            assert (there.server, there.ended_at) == ("test:1", None)
            assert there.peer.startswith("ipv4:127.0.0.1:")
        eventually(lambda: [each.ended_at is not None for each in now().sessions] == [True])
        assert now().sessions[0].unacknowledged == 30


def test_a_session_of_a_process_that_has_died_is_not_connected(log: psycopg.Connection, dsn: str) -> None:
    log.execute("insert into pipeline.walstream_sessions (claim, server, peer) values ('dead:1', 'dead:1', 'ipv4:x')")
    with Rpc(dsn) as rpc:
        (session,) = status.read(rpc.config, log).sessions
        assert (session.server, session.ended_at, session.connected) == ("dead:1", None, False)
