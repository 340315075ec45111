"""`kill -9` of any process and an immediate shutdown of either database, under load: nothing lost, nothing repeated.

The truth is what the source's own tables hold in the end. Where Debian's Postgres 15 is installed, the whole sequence
is compared with a `test_decoding` slot too; elsewhere a row that every third transaction locks gives the order between
writers.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, groupby
from pathlib import Path

import httpx
import psycopg
import pytest

from pipeline.embedded import Server
from tests.fixtures import test_decoding
from tests.fixtures.postgres import SETTINGS, Cluster, bin_dir, free_port
from tests.fixtures.processes import alive
from tests.fixtures.server import Serving
from tests.fixtures.test_decoding import Change
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long  # tests/torture does this faster, and more of it
WRITERS, KILLS = 4, 3
PACE = 0.002
"""Seconds a writer rests between two transactions: the load must not starve what is tested."""
GONE_WITHIN = 5.0
LARGE = 200_000
TABLES = f"""
    create table journal (writer int, n int, tally int, primary key (writer, n));
    create table accounts (id int primary key, n int not null);
    create table tally (id int primary key, n int not null, writer int);
    insert into accounts select id, 0 from generate_series(1, {WRITERS}) id;
    insert into tally values (1, 0, 0);
"""
KEYS = {"public.accounts": "id", "public.tally": "id"}


class Load:
    """Writers, each a thread that commits one small transaction after the other, through crashes of the source."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=[writer + 1]) for writer in range(WRITERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._failures

    def _write(self, writer: int) -> None:
        try:
            while not self._stop.is_set():
                with suppress(psycopg.OperationalError):  # the source is down: the journal knows how far we were
                    self._write_while_connected(writer)
                self._stop.wait(PACE)
        except BaseException as error:
            self._failures.append(error)

    def _write_while_connected(self, writer: int) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute("select coalesce(max(n), 0) from journal where writer = %s", [writer]).fetchone()
            assert row is not None
            for n in count(row[0] + 1):
                if self._stop.wait(PACE):
                    return
                with connection.transaction():
                    _transaction(connection, writer, n)


def _transaction(connection: psycopg.Connection, writer: int, n: int) -> None:
    tally = None
    if n % 3 == 0:
        statement = "update tally set n = n + 1, writer = %s returning n"
        (tally,) = connection.execute(statement, [writer]).fetchone() or (None,)
    connection.execute("update accounts set n = %s where id = %s", [n, writer])
    connection.execute("insert into journal values (%s, %s, %s)", [writer, n, tally])


def expected_of(writer: int, journal: list[tuple[int, int, int | None]]) -> Iterator[Change]:
    """What a writer's committed transactions are as events."""
    for _, n, tally in journal:
        who, number = str(writer), str(n)
        if tally is not None:
            yield Change("public.tally", "update", "1", {"id": "1", "n": str(tally), "writer": who})
        yield Change("public.accounts", "update", who, {"id": who, "n": number})
        values = {"writer": who, "n": number, "tally": None if tally is None else str(tally)}
        yield Change("public.journal", "insert", f"[{writer},{n}]", values)


def writer_of(change: Change) -> int:
    values = change.values
    return int((values["id"] if change.table == "public.accounts" else values["writer"]) or 0)


def assert_complete(source: psycopg.Connection, log: psycopg.Connection) -> None:
    """Every writer's changes are there once and in its order, and so are the changes of the row they share."""
    events = [change for change in test_decoding.read_events(log) if change.action != "message"]
    journal = source.execute("select writer, n, tally from journal order by writer, n").fetchall()
    for writer, rows in groupby(journal, key=lambda row: row[0]):
        test_decoding.assert_same((e for e in events if writer_of(e) == writer), expected_of(writer, list(rows)))
    assert {writer for writer, _, _ in journal} == {*range(1, WRITERS + 1)}
    tallied = [event.values["n"] for event in events if event.table == "public.tally"]
    assert tallied == [str(n) for n in range(1, len(tallied) + 1)]
    sizes = test_decoding.transaction_sizes(log)
    assert len(sizes) == len(journal) + 1
    assert sizes[-1] == 1


def wait_for_all(source: psycopg.Connection, log: psycopg.Connection) -> None:
    test_decoding.send_mark(source, "end")
    eventually(lambda: test_decoding.arrived(log, "end"), timeout=40)


def watermark(log: psycopg.Connection) -> int:
    (events,) = log.execute("select coalesce(sum(events), 0)::bigint from pipeline.shuffle_progress").fetchone() or (0,)
    return int(events)


def wait_for_progress(log: psycopg.Connection) -> None:
    """Until more has arrived than there is now: what runs has got to work again."""
    before = watermark(log)
    eventually(lambda: watermark(log) > before + 50, timeout=30)


@pytest.fixture
def source_cluster(clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(15 if bin_dir(15) else 18)


@pytest.fixture
def database_cluster(source_cluster: Cluster) -> Cluster:
    return source_cluster


@contextmanager
def opened(*dsns: str) -> Iterator[list[psycopg.Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for dsn in dsns]


def kill_child(role: str) -> Callable[[Serving, Callable[..., Serving]], Serving]:
    def kill(server: Serving, serve: Callable[..., Serving]) -> Serving:
        pid = server.child_pid(role)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.child_pid(role) != pid)
        return server

    return kill


def kill_server(server: Serving, serve: Callable[..., Serving]) -> Serving:
    # Progress may be the shuffler's alone, on what was staged before: all are to be there to be killed.
    children = {role: server.child_pid(role) for role in ("replication", "shuffle", "schedule", "api")}
    server.process.kill()
    eventually(lambda: not any(alive(pid) for pid in children.values()), timeout=GONE_WITHIN)
    return serve(wait=False)


@pytest.mark.parametrize(
    "kill", [kill_child("replication"), kill_child("shuffle"), kill_server], ids=["worker", "shuffler", "server"]
)
def test_three_kills_lose_nothing_and_repeat_nothing(
    kill: Callable[[Serving, Callable[..., Serving]], Serving],
    source_cluster: Cluster,
    source_dsn: str,
    database_dsn: str,
    slot_name: str,
    serve: Callable[..., Serving],
):
    with opened(source_dsn, database_dsn) as (source, log):
        source.execute(TABLES)
        server = serve()
        if has_test_decoding := source_cluster.major == 15:
            test_decoding.make_slot(source, f"{slot_name}_td")
        with Load(source_dsn):
            for _ in range(KILLS):
                wait_for_progress(log)
                server = kill(server, serve)
            wait_for_progress(log)
        wait_for_all(source, log)
        assert_complete(source, log)
        if has_test_decoding:
            keys = {**KEYS, "public.journal": "-"}
            reported = test_decoding.read_slot(source, f"{slot_name}_td", keys)
            events = test_decoding.read_events(log)
            test_decoding.assert_same((e._replace(key="") for e in events), (c._replace(key="") for c in reported))


@pytest.mark.parametrize("role", ["replication", "shuffle"])
def test_a_role_killed_inside_of_a_large_transaction_moves_it_once(
    role: str, source_dsn: str, database_dsn: str, serve: Callable[..., Serving]
):
    with opened(source_dsn, database_dsn) as (source, log):
        source.execute("create table t (id int primary key, note text)")
        server = serve()
        statement = "insert into t select n, repeat('x', 300) from generate_series(1, %s::int) n"
        source.execute(statement, [LARGE])
        open_changes = "select from pipeline.replication_progress where open_changes > 0"
        eventually(lambda: log.execute(open_changes).fetchone() is not None)
        kill_child(role)(server, serve)
        wait_for_all(source, log)
        assert test_decoding.transaction_sizes(log) == [LARGE, 1]
        keys = "select count(distinct record_pk) from public.sequin_events where action = 'insert'"
        assert log.execute(keys).fetchone() == (LARGE,)


@pytest.fixture
def own_server(server_directory: Path) -> Callable[[str], Server]:
    """`own_server("a")`: a Postgres that only this test has, to be stopped as it likes."""

    def start(name: str) -> Server:
        server = Server(server_directory.with_name(name), settings=SETTINGS, port=free_port())
        server.start()
        return server

    return start


def reasons(server: Serving) -> list[str]:
    answer = server.get("/readyz")
    assert answer.status_code == 503
    return list(answer.json()["reasons"])


def go_down_and_come_back(postgres: Server, server: Serving, what: str) -> None:
    postgres.stop("immediate")
    eventually(
        lambda: any(what in reason for reason in reasons(server)), errors=(AssertionError, httpx.TimeoutException)
    )
    assert server.process.poll() is None
    postgres.start()
    server.wait_ready(timeout=40)


def databases(server: Server, *names: str) -> list[str]:
    server.create_databases(*names)
    return [server.dsn(name) for name in names]


def test_an_immediate_shutdown_of_both_databases_at_once(
    own_server: Callable[[str], Server], serve: Callable[..., Serving]
):
    postgres = own_server("both")
    source_dsn, database_dsn = databases(postgres, "shop", "events")
    with opened(source_dsn) as (source,):
        source.execute(TABLES)
    server = serve(source_dsn=source_dsn, database_dsn=database_dsn)
    with Load(source_dsn):
        with opened(database_dsn) as (log,):
            wait_for_progress(log)
        go_down_and_come_back(postgres, server, "pipeline database")
        with opened(database_dsn) as (log,):
            wait_for_progress(log)
    with opened(source_dsn, database_dsn) as (source, log):
        wait_for_all(source, log)
        assert_complete(source, log)


def test_an_immediate_shutdown_of_one_database_then_of_the_other(
    own_server: Callable[[str], Server], serve: Callable[..., Serving]
):
    sources, logs = own_server("source"), own_server("log")
    (source_dsn,), (database_dsn,) = databases(sources, "shop"), databases(logs, "events")
    with opened(source_dsn) as (source,):
        source.execute(TABLES)
    server = serve(source_dsn=source_dsn, database_dsn=database_dsn)
    with Load(source_dsn):
        for postgres, what in ((logs, "pipeline database"), (sources, "source")):
            with opened(database_dsn) as (log,):
                wait_for_progress(log)
            go_down_and_come_back(postgres, server, what)
        with opened(database_dsn) as (log,):
            wait_for_progress(log)
    with opened(source_dsn, database_dsn) as (source, log):
        wait_for_all(source, log)
        assert_complete(source, log)
