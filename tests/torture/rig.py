"""Two Postgres servers of our own behind proxies, and scenes on them: a source, a pipeline database, servers.

Usable with and without pytest: `with Rig(18) as rig, rig.scene() as scene: server = scene.start_server()`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.data_directories import prepare
from tests.fixtures.postgres import SETTINGS, Cluster, bin_dir, free_port, unique
from tests.fixtures.processes import alive
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually
from tests.torture.faults.proxy import Proxy
from tests.torture.plan.hostile import HOSTILE, Settings

SOURCE_SETTINGS = {
    **SETTINGS,
    "track_commit_timestamp": "on",
    "wal_keep_size": "2GB",
    "max_prepared_transactions": "20",
}
LOG_SETTINGS = {
    **SETTINGS,
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
}
"""An asynchronous commit stays in memory, so that an immediate shutdown really takes it back."""
OURS = "pipeline "
"""How the application_names of the product's connections begin."""
ROLES = ("snapshot", "replication", "shuffle", "schedule", "api")
LAST_LINES = 6
"""This many of each server come first where something has failed: of a long text only a part is seen."""
_SESSIONS = r"""
    select application_name, pid, state, wait_event_type, wait_event, clock_timestamp() - state_change as since,
        regexp_replace(left(query, 60), '\s+', ' ', 'g')
    from pg_stat_activity where starts_with(application_name, 'pipeline ') order by application_name"""


class Node:
    """One Postgres server of our own and the proxy before it."""

    def __init__(self, directory: Path, binaries: Path, settings: dict[str, str]) -> None:
        self.server = EmbeddedServer(directory, bin_dir=binaries, settings=settings, port=free_port())
        prepare(directory, binaries)
        self.server.start()
        assert self.server.port is not None
        self.proxy = Proxy(self.server.port)
        self.cluster = Cluster(self.server.dsn("postgres"), self.server)

    def direct(self, database: str) -> str:
        """A DSN for writers and readers: past the proxy."""
        return self.server.dsn(database)

    def proxied(self, database: str, user: str = "postgres") -> str:
        """A DSN for the product: through the proxy."""
        return make_conninfo(
            host="127.0.0.1",
            port=self.proxy.port,
            user=user,
            dbname=database,
            sslmode="disable",
            gssencmode="disable",
        )

    def crash(self, meanwhile: Callable[[], object] | None = None) -> None:
        """An immediate shutdown and a start. `meanwhile` runs after it, before the product can connect again."""
        if meanwhile is not None:
            self.proxy.freeze()
        self.server.stop("immediate")
        self.server.start()
        if meanwhile is not None:
            try:
                meanwhile()
            finally:
                self.proxy.cut()
                self.proxy.thaw()

    def copy(self, folder: Path) -> None:
        """Its data directory, as an immediate shutdown leaves it; it runs again then."""
        self.server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)  # of the same seed, before
        shutil.copytree(self.server.data, folder, ignore=shutil.ignore_patterns("*.sock*"))
        self.server.start()

    def sessions(self, name: str = OURS) -> list[int]:
        """pids of the server's sessions whose application_name begins so."""
        query = "select pid from pg_stat_activity where starts_with(application_name, %s) order by pid"
        with self.cluster.connect() as connection:
            return [pid for (pid,) in connection.execute(query, [name])]

    def terminate(self, name: str = OURS) -> int:
        """pg_terminate_backend of sessions whose application_name begins so; returns how many."""
        query = (
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where starts_with(application_name, %s) and pid <> pg_backend_pid()"
        )
        with self.cluster.connect() as connection:
            row = connection.execute(query, [name]).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self.proxy.close()
        self.cluster.close()
        self.server.stop("immediate")


class Rig:
    """A server for sources and one for pipeline databases, of one major version. Raises when that is not installed."""

    def __init__(self, major: int, folder: Path | None = None) -> None:
        """`folder`: short enough for sockets; made and removed when none is given."""
        binaries = bin_dir(major)
        if binaries is None:
            raise RuntimeError(f"PostgreSQL {major} is not installed")
        self.major = major
        # The name is what a later test run knows leftovers by (tests/fixtures/postgres.py).
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"wal-pg-{os.getpid()}-"))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.source = Node(self.folder / "source", binaries, SOURCE_SETTINGS)
            stack.callback(self.source.close)
            self.log = Node(self.folder / "log", binaries, LOG_SETTINGS)
            stack.callback(self.log.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def scene(self, settings: Settings | None = None) -> Scene:
        """A fresh source and a fresh, migrated pipeline database; `settings`: hostile ones of the server's roles."""
        return Scene(self, settings or {})

    def close(self) -> None:
        """Stop both servers and remove their data."""
        self._stack.close()


class Scene:
    """One source database, one pipeline database, one slot; servers of the product on them."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self.rig = rig
        self.source_name, self.log_name = unique("source"), unique("events")
        self.slot = unique("slot")
        self.servers: list[Serving] = []
        self.folder = Path(tempfile.mkdtemp(dir=rig.folder, prefix="serve-"))
        rig.source.cluster.create(self.source_name)
        rig.log.cluster.create(self.log_name, rig.log.cluster.template)
        self.user = "postgres"
        """As whom the servers connect, to both."""
        if settings:
            self.user = unique("server")
            for side, node, name in (("source", rig.source, self.source_name), ("log", rig.log, self.log_name)):
                _make_role(node.cluster, self.user, name, settings.get(side, ()))

    def __enter__(self) -> Scene:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def source_dsn(self) -> str:
        """For writers."""
        return self.rig.source.direct(self.source_name)

    @property
    def log_dsn(self) -> str:
        """For readers."""
        return self.rig.log.direct(self.log_name)

    def source(self) -> psycopg.Connection:
        """A writer's connection, in autocommit mode."""
        return psycopg.connect(self.source_dsn, autocommit=True)

    def log(self) -> psycopg.Connection:
        """A reader's connection, in autocommit mode."""
        return psycopg.connect(self.log_dsn, autocommit=True)

    @property
    def given(self) -> dict[str, Any]:
        """What a server or a command is told of the databases, which it reaches through the proxies."""
        return {
            "source_dsn": self.rig.source.proxied(self.source_name, self.user),
            "database_dsn": self.rig.log.proxied(self.log_name, self.user),
            "slot": self.slot,
        }

    def start_server(
        self, *, wait: bool = True, arguments: tuple[str, ...] = ("serve",), **settings: object
    ) -> Serving:
        """`pipeline serve` behind the proxies, any number of them; `settings` as in tests.fixtures.server."""
        server = Serving(self.folder, {**self.given, "http_port": free_port(), **settings}, arguments)
        self.servers.append(server)
        if wait:
            server.wait_ready()
        return server

    def kill(self, server: Serving, role: str | None = None) -> None:
        """SIGKILL to a role's process, or to the supervisor alone: its roles see that and go. Returns then."""
        if role is None:
            server.kill()
            return
        pid = server.children().get(role)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: not alive(pid))

    def freeze_server(self, server: Serving) -> None:
        """SIGSTOP to the supervisor and all of its roles: a zombie to be."""
        os.killpg(server.process.pid, signal.SIGSTOP)

    def thaw_server(self, server: Serving) -> None:
        """SIGCONT."""
        os.killpg(server.process.pid, signal.SIGCONT)

    def logs(self) -> str:
        """How everything is, then all that the servers have printed."""
        printed = (f"--- serve on port {server.port}\n{server.log()}" for server in self.servers)
        return "\n".join((self.newest_lines(), *printed))

    def newest_lines(self) -> str:
        """What each server has said last, the newest server first, and what the product's sessions do just now."""
        lines = []
        for server in reversed(self.servers):
            said = server.log().splitlines()
            lines.append(f"--- serve on port {server.port}, pid {server.process.pid}, has said {len(said)} lines")
            lines += map(_in_short, said[-LAST_LINES:])
        lines.append("--- sessions")
        for name, node in (("source", self.rig.source), ("log", self.rig.log)):
            with suppress(psycopg.OperationalError), node.cluster.connect() as connection:
                lines += [f"{name}: {' | '.join(map(str, row))}" for row in connection.execute(_SESSIONS)]
        return "\n".join(lines)

    def keep(self, folder: Path) -> None:
        """End the servers at once, and copy both databases' data directories to `source` and `log` of this folder."""
        for server in self.servers:
            server.close()
        self.rig.source.copy(folder / "source")
        self.rig.log.copy(folder / "log")

    def close(self) -> None:
        """End the servers at once and drop the databases with their slots."""
        for node in (self.rig.source, self.rig.log):
            node.proxy.disarm()
            node.proxy.thaw()
        for server in self.servers:
            server.close()
        with suppress(psycopg.OperationalError), self.source() as source:  # what a failed run has left prepared
            for (name,) in source.execute("select gid from pg_prepared_xacts where database = current_database()"):
                source.execute(sql.SQL("rollback prepared {}").format(name))
        self.rig.log.cluster.drop(self.log_name)
        self.rig.source.cluster.drop(self.source_name)
        if self.user != "postgres":
            for node in (self.rig.source, self.rig.log):
                with node.cluster.connect() as connection:
                    connection.execute(sql.SQL("drop role {}").format(sql.Identifier(self.user)))


def _make_role(cluster: Cluster, role: str, database: str, settings: Iterable[str]) -> None:
    """A superuser whose sessions in this database begin with these settings of HOSTILE."""
    with cluster.connect() as connection:
        connection.execute(sql.SQL("create role {} superuser login").format(sql.Identifier(role)))
        for name in settings:
            known = connection.execute("select current_setting(%s, true)", [name]).fetchone()
            if known != (None,):
                connection.execute(
                    sql.SQL("alter role {} in database {} set {} = {}").format(
                        sql.Identifier(role), sql.Identifier(database), sql.Identifier(name), HOSTILE[name]
                    )
                )


def _in_short(line: str) -> str:
    """A line of a server's log: when, who, what."""
    try:
        said = json.loads(line)
        return f"{said['time'][11:23]} {said['role']}: {said['message'][:150]}"
    except (ValueError, KeyError, TypeError):
        return line[:150]
