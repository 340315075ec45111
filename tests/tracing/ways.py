"""The ways that are traced: what is done to a running server, and which of its processes a row then goes through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psycopg

from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import ROOT, Serving, run_command, serving
from tests.fixtures.waiting import eventually
from tests.tracing.tracer import Entered, Tracer

SETTLE_SECONDS = 0.3
"""How long a window stays open after the row has arrived: something follows the commit that makes it visible."""
QUIET_SECONDS = 0.7
"""How long nothing happens before a window: the roles then wait for the next change."""
_NEW = 1000
_TABLE = "create table {} (id int primary key, note text)"
CHANGES = {
    "insert": f"insert into {{table}} values ({_NEW} + {{number}}, 'new')",
    "update": "update {table} set note = 'changed {number}' where id = {number}",
    "delete": "delete from {table} where id = {number}",
}
WORKER, SHUFFLER = "replication", "shuffle"


@dataclass(frozen=True)
class Way:
    """`settings`: of the server. `processes`: those of which the way is shown, by the beginning of their names."""

    title: str
    processes: tuple[str, ...]
    settings: Mapping[str, object]
    take: Callable[[Scene], Iterator[int]]
    """Opens and closes a window for each round, and yields its number."""


@dataclass
class Scene:
    """A traced server with its databases, and what is asked for: a `change` of a table after some `before`."""

    server: Serving
    tracer: Tracer
    source: psycopg.Connection
    log: psycopg.Connection
    cluster: Cluster
    folder: Path
    rounds: int
    change: str
    before: int
    tables: Sequence[str]
    """Their rows are older than the server's slot."""

    def commit(self, table: str, number: int) -> None:
        """Make the change, and wait until its event is visible."""
        after = self.newest()
        self.source.execute(CHANGES[self.change].format(table=table, number=number).encode())
        self.wait_for_event(table, after)

    def wait_for_event(self, table: str, after: int, action: str = "%") -> None:
        """Until the log has an event of the table with a newer seq than `after`."""
        query = "select from sequin_events where seq > %s and source_table_name = %s and action like %s"

        def found() -> None:
            assert self.log.execute(query.encode(), (after, table, action)).rowcount

        eventually(found)

    def newest(self) -> int:
        """The newest seq of the log."""
        return int(self.log.execute("select coalesce(max(seq), 0) from sequin_events").fetchone()[0])  # type: ignore[index]


def _take_change(scene: Scene) -> Iterator[int]:
    """A row is inserted, updated or deleted, alone in its transaction."""
    for table in scene.tables:
        for number in range(scene.before):
            scene.commit(table, number)
        with _window(scene) as window:
            scene.commit(table, scene.before)
        yield window


def _take_existing_row(scene: Scene) -> Iterator[int]:
    """A row that the log has not is read from its table."""
    for table in scene.tables:
        after = scene.newest()
        with _window(scene) as window:
            answer = httpx.post(scene.server.url("/v1/backfills"), json={"table": f"public.{table}"}, timeout=60)
            assert answer.status_code < 300, answer.text
            scene.wait_for_event(table, after, "read")
        yield window


def _take_transaction_to_follower(scene: Scene) -> Iterator[int]:
    """A transaction is applied to a database that follows the source."""
    table = scene.tables[0]
    with scene.cluster.database("follower") as dsn, psycopg.connect(dsn, autocommit=True) as there:
        there.execute(_TABLE.format(table).encode())
        given = {"source_dsn": scene.source.info.dsn, "database_dsn": scene.log.info.dsn}
        add = ("add", "traced", "--dsn", dsn, "--copy", "none", "--schema", "exists", "--tables", f"public.{table}")
        done = run_command("followers", *add, folder=scene.folder, **given)
        assert done.returncode == 0, done.stderr
        for number in range(scene.rounds + 1):
            with _window(scene) as window:
                scene.source.execute(f"insert into {table} values ({_NEW + number}, 'new')".encode())
                eventually(partial(_require_rows, there, table, number + 1))
            if number:  # the first one also finds out what the table is like
                yield window


def _require_rows(there: psycopg.Connection, table: str, rows: int) -> None:
    assert there.execute(f"select from {table}".encode()).rowcount == rows


@contextmanager
def _window(scene: Scene) -> Iterator[int]:
    time.sleep(QUIET_SECONDS)
    with scene.tracer.window() as window:
        yield window
        time.sleep(SETTLE_SECONDS)


WAYS = {
    "staged": Way("A change that is staged and moved", (WORKER, SHUFFLER), {"small_batches": "staged"}, _take_change),
    "direct": Way("A change that is written directly", (WORKER, SHUFFLER), {}, _take_change),
    "existing": Way("An existing row", ("snapshot", WORKER, SHUFFLER), {}, _take_existing_row),
    "follower": Way("A follower's transaction", ("follower ",), {}, _take_transaction_to_follower),
}


def trace(
    way: Way, cluster: Cluster, rounds: int, change: str = "insert", *, before: int = 1, code: Path = ROOT
) -> list[list[Entered]]:
    """What was entered, round by round, by the processes of the way. `before`: changes that its table had already."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trace-")))
        dsns = [stack.enter_context(cluster.database(name)) for name in ("source", "events")]
        source, log = (stack.enter_context(psycopg.connect(dsn, autocommit=True)) for dsn in dsns)
        tables = [unique("traced") for _ in range(rounds)]
        for table in tables:
            source.execute(_TABLE.format(table).encode())
            source.execute(f"insert into {table} select n, 'there' from generate_series(0, {before}) n".encode())
        tracer = Tracer(folder, code)
        start = stack.enter_context(serving(folder, dsns[0], dsns[1], unique("slot")))
        server = start(code=code, variables=tracer.variables, **{"snapshot": "never", **way.settings})
        windows = list(way.take(Scene(server, tracer, source, log, cluster, folder, rounds, change, before, tables)))
        found = [each for each in tracer.entered() if each.process.startswith(way.processes)]
    return [[each for each in found if each.window == window] for window in windows]
