"""A source that is restored to an earlier state, and adopted, while clients read: their positions count on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress

import grpc
import psycopg
import pytest

from tests.fixtures.event_log import EventLog
from tests.fixtures.grpc_place import ids, listening, of, require_clean
from tests.fixtures.postgres import Cluster, free_port
from tests.fixtures.rough_wire import Rough, running
from tests.fixtures.rpc import consumer, session_of
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client

pytestmark = pytest.mark.xdist_group("rpc restored")


@pytest.fixture
def rough(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rough]:
    home, folder = tmp_path_factory.mktemp("pg"), tmp_path_factory.mktemp("restored")
    with running(18, cluster, folder, home / "a", wires="walstream", grpc_port=free_port(), log_level="debug") as made:
        yield made


def logged(log: psycopg.Connection, number: int) -> None:
    query = f"select from sequin_events where record ->> 'id' = '{number}'"
    eventually(lambda: log.execute(query.encode()).rowcount == 1)


def test_sessions_outlive_it_and_lose_nothing(rough: Rough, tmp_path_factory: pytest.TempPathFactory) -> None:
    port = int(str(rough.settings["grpc_port"]))
    listening(port)
    address = f"127.0.0.1:{port}"
    with psycopg.connect(str(rough.settings["database_dsn"]), autocommit=True) as log:
        consumer(log, "reader")
        with suppress(psycopg.errors.DuplicateObject):  # the server was sooner
            rough.run("alter publication pipeline add table t")
        rough.run("insert into t values (1)")
        logged(log, 1)
        saved = rough.postgres.directory.with_name("saved")
        rough.postgres.stop()
        shutil.copytree(rough.postgres.data, saved, symlinks=True)
        rough.postgres.start()
        with Client(address).connected() as client, EventLog(address) as reading:
            call = reading.read(consumer="reader", follow=True)
            session = session_of(call)
            rough.run(*(f"insert into t values ({number})" for number in range(2, 31)))
            events = of(client, "t", 29, ack=False)
            while (transaction := next(call)).changes[-1].record != '{"id": 30}':
                pass
            logged(log, 30)
            rough.postgres.stop()
            shutil.rmtree(rough.postgres.data)
            saved.rename(rough.postgres.data)
            rough.postgres.start()
            assert reading.ack("reader", transaction.position.seq, session) == transaction.position.seq
            client.ack(events[-1].lsn)
            rough.end()
            assert client.ended()[0] == grpc.StatusCode.UNAVAILABLE
        done = run_command("sources", "adopt", "--yes", folder=tmp_path_factory.mktemp("adopt"), **rough.settings)
        assert done.returncode == 0, done
        rough.begin()
        listening(port)
        with Client(address).connected() as client, EventLog(address) as reading:
            call = reading.read(consumer="reader", follow=True)
            rough.run("insert into t values (1000)")
            found = of(client, "t", 1)
            while ids(found)[-1] != 1000:
                found += of(client, "t", 1)
            after = next(call)
            while after.changes[-1].record != '{"id": 1000}':
                after = next(call)
            assert after.position.source_epoch > transaction.position.source_epoch
            assert after.position.seq > transaction.position.seq
            assert found[-1].lsn == after.position.commit_lsn
    require_clean(rough.server)
