"""Followers and subscriptions of the same tables on the same three servers: the source's, the log's, the followers'."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from psycopg import Connection, sql

from tests.benchmarks import processes
from tests.benchmarks.backlog import PUBLICATION, SOURCE_DATABASE, TABLE
from tests.benchmarks.contenders import LIMIT
from tests.benchmarks.errors import BenchmarkFailed
from tests.benchmarks.processes import tree_cpu_seconds
from tests.benchmarks.rows_before import drop_slot
from tests.benchmarks.server import COMMAND, DATABASE, STOP_GRACE, PipelineServer, durable_server, serve
from tests.benchmarks.usage import postmaster
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import children, title

SLOT = "followed"
POLL = 0.01
REAPED = 1.0
"""Seconds until the CPU of a process that has ended counts with its parent's."""
SOURCE, LOG, THERE, OURS = "source's server", "pipeline database's server", "followers' server", "pipeline serve"
APPLIERS = "appliers"


@dataclass
class Places:
    """The three servers; `source` is a session at the source."""

    cluster: Cluster
    logs: Cluster
    there: Cluster
    source: Connection

    @property
    def pids(self) -> list[int]:
        """That of each server."""
        return [postmaster(cluster) for cluster in (self.cluster, self.logs, self.there)]

    def database(self, name: str, tables: str = TABLE) -> Connection:
        """A session in a new database of the followers' server, which has these tables."""
        self.there.drop(name)
        self.there.create(name)
        found = self.there.connect(name)
        found.execute(tables.encode())
        return found

    def settle(self) -> None:
        """What begins next does not pay for what was written before. The log is vacuumed, as in time by itself."""
        with self.logs.connect(DATABASE) as connection:
            connection.execute("vacuum analyze sequin_events")
        self.settle_source()

    def settle_source(self) -> None:
        """The same, but for the log."""
        for cluster in (self.cluster, self.there):
            with cluster.connect() as connection:
                connection.execute("checkpoint")


@contextmanager
def places(cluster: Cluster, source: Connection) -> Iterator[Places]:
    """Two servers beside the source's. The followers' has no autovacuum: it would run for one and not for another."""
    with durable_server() as logs, durable_server() as there:
        with there.connect() as connection:
            connection.execute("alter system set autovacuum = off")
            connection.execute("select pg_reload_conf()")
        yield Places(cluster, logs, there, source)


class Followers:
    """A server and what follows its log, each by name and database."""

    def __init__(self, at: Places, server: PipelineServer) -> None:
        self._at = at
        self.server = server
        self._open = ExitStack()
        self.log = server.databases.connect(DATABASE)

    def add(self, name: str, copy: str = "none") -> None:
        """A follower that is a database of that name."""
        dsn = self._at.there.tcp_dsn(name)
        self.server.run("followers", "add", name, "--dsn", dsn, "--copy", copy, "--schema", "exists")

    def change(self, command: str, name: str, state: str) -> None:
        """Pause or resume it, until it is so."""
        self.server.run("followers", command, name)
        self.wait(name, state)

    def wait(self, name: str, state: str) -> None:
        query = "select state from pipeline.followers where name = %s"
        _until(lambda: self.log.execute(query, (name,)).fetchone() == (state,), f"{name} is not {state}", self.server)

    def remove(self, name: str) -> None:
        self.server.run("followers", "remove", name)

    def appliers(self) -> list[int]:
        """Pids of the processes that apply."""
        return [
            pid
            for fork_server in children(self.server.process.pid)
            for pid in children(fork_server)
            if title(pid).startswith("pipeline: follower ")
        ]

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Inside, nothing of it runs; behind it, it runs again and reads its slot."""
        server = self.server
        server.process.terminate()
        server.process.wait(STOP_GRACE)
        yield
        self._open.enter_context(self._running_again(server))
        self.server.wait_active(self._at.source)

    @contextmanager
    def _running_again(self, server: PipelineServer) -> Iterator[None]:
        options = {"cwd": server.log.parent, "env": dict(server.environment)}
        with (
            server.log.open("a") as output,
            processes.running(
                [*COMMAND, "serve"], grace=STOP_GRACE, stdout=output, stderr=output, **options
            ) as process,
        ):
            self.server = PipelineServer(
                server.cluster, server.databases, SLOT, process, server.log, server.http_port, server.environment
            )
            yield

    def close(self) -> None:
        self._open.close()
        self.log.close()


@contextmanager
def followers(at: Places, settings: Mapping[str, str] | None = None) -> Iterator[Followers]:
    """A server that follows the source."""
    with serve(at.cluster, SLOT, settings=settings, databases=at.logs) as server:
        server.wait_active(at.source)
        found = Followers(at, server)
        try:
            yield found
        finally:
            found.close()
    drop_slot(at.cluster, SLOT)


@contextmanager
def subscription(at: Places, database: Connection, *, copy: bool = False, enabled: bool = True) -> Iterator[str]:
    """A native subscription of that database, of its name; its slot has what is committed from here on."""
    name = database.info.dbname
    create = sql.SQL("create subscription {} connection {} publication {} with (copy_data = {}, enabled = {})").format(
        sql.Identifier(name),
        sql.Literal(at.cluster.tcp_dsn(SOURCE_DATABASE)),
        sql.Identifier(PUBLICATION),
        sql.Literal(copy),
        sql.Literal(True),
    )
    database.execute(create)
    try:
        if not enabled:
            disable(at, name, database)
        yield name
    finally:
        database.execute(sql.SQL("drop subscription {}").format(sql.Identifier(name)))


def enable(name: str, database: Connection) -> None:
    database.execute(sql.SQL("alter subscription {} enable").format(sql.Identifier(name)))


def disable(at: Places, name: str, database: Connection) -> None:
    """Wait until no session reads its slot."""
    query = "select active from pg_replication_slots where slot_name = %s"
    _until(lambda: at.source.execute(query, (name,)).fetchone() is not None, f"no slot {name}")
    database.execute(sql.SQL("alter subscription {} disable").format(sql.Identifier(name)))
    _until(lambda: at.source.execute(query, (name,)).fetchone() == (False,), f"slot {name} is still read")
    time.sleep(REAPED)


def wait_for_row(
    database: Connection, key: int, table: str = "bench_rows", server: PipelineServer | None = None
) -> None:
    """Until this row is visible. Raises BenchmarkFailed."""
    query = sql.SQL("select exists (select from public.{} where id = %s)").format(sql.Identifier(table))
    _until(lambda: database.execute(query, (key,)).fetchone() == (True,), f"row {key} is not there", server)


def _until(condition: Callable[[], bool], failure: str, server: PipelineServer | None = None) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if server is not None:
            server.require_alive()
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"{failure} after {LIMIT:.0f} s")
        time.sleep(POLL)


class Cost:
    """CPU seconds since this was made: of each of the servers with all that they do, and of our processes."""

    def __init__(self, at: Places, running: Followers | None = None) -> None:
        self._trees = {
            name: postmaster(cluster) for name, cluster in ((SOURCE, at.cluster), (LOG, at.logs), (THERE, at.there))
        }
        if running is not None:
            self._trees[OURS] = running.server.process.pid
        self._followers = running
        self._before, self._appliers_before = self._read(), self._of_appliers()

    def _read(self) -> dict[str, float]:
        return {name: tree_cpu_seconds(pid) for name, pid in self._trees.items()}

    def _of_appliers(self) -> dict[int, float]:
        pids = self._followers.appliers() if self._followers is not None else []
        return {pid: processes.cpu_seconds(pid) for pid in pids}

    def seconds(self) -> dict[str, float]:
        """By server and process; `pipeline serve` without its appliers."""
        time.sleep(REAPED)
        used = {name: seconds - self._before[name] for name, seconds in self._read().items()}
        if OURS in used:
            found = self._of_appliers().items()
            used[APPLIERS] = sum(seconds - self._appliers_before.get(pid, 0.0) for pid, seconds in found)
            used[OURS] -= used[APPLIERS]
        return used


def ratio(ours: float, theirs: float) -> float:
    """Also where a run was too small for the clock of processes."""
    return ours / max(0.01, theirs)
