"""`pipeline demo --followers N`: the shop, and databases that stay equal to it while it works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from psycopg import sql
from rich.console import Console
from rich.text import Text

from pipeline.config.settings import Config
from pipeline.demo import followed_screen, roles, shop, visitors
from pipeline.demo.closing import short
from pipeline.demo.follower_clusters import FollowerCluster
from pipeline.demo.server import ServerProcess
from pipeline.demo.shop import ShopClerk
from pipeline.demo.visitors import DemoIncident, ShopVisitors
from pipeline.errors import PipelineError
from pipeline.followers.operating import waiting
from pipeline.followers.operating.watch import FollowersWatch
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import Connection
from pipeline.terminal import drawing

FRAME = 0.5
ARRIVAL_TIMEOUT = 120.0
"""Seconds that the followers may take to copy the tables, and to apply the last commit."""
_CLERK_TIMEOUT = 10.0


@dataclass(frozen=True)
class TableTotals:
    """The content of a table of a database: the number of rows, and the checksum of all."""

    rows: int
    checksum: str


class FollowedShow:
    """The demo with followers. The shop must have been created, with its visits, before the server starts."""

    def __init__(self, console: Console, config: Config, followers: int) -> None:
        self._console, self._config = console, config
        self._clusters = [FollowerCluster(folder(config), number) for number in range(1, followers + 1)]

    def run(self, seconds: float) -> int:
        """Write for `seconds`; returns 0 if all databases are equal in the end, 1 with the differences."""
        with ExitStack() as stack:
            server = ServerProcess(self._config)
            stack.callback(server.stop)
            for each in self._clusters:
                stack.callback(each.stop)
                each.create()
            server.wait_until_ready()
            self._console.print(
                f"the server is ready, with two small roles at the source; its log is {short(server.log)}"
            )
            source = stack.enter_context(_connect(self._config.source))
            shopkeeper = stack.enter_context(_connect(roles.writing(self._config)))
            pipeline = stack.enter_context(_connect(self._config.database))
            shop.wait_until_published(source, (*shop.TABLES, visitors.TABLE))
            for each in self._clusters:
                each.add(self._config, source, pipeline)
            watch = stack.enter_context(FollowersWatch(self._config, most=None))
            self._work(server, shopkeeper, watch, seconds)
            names = [each.name for each in self._clusters]
            waited = waiting.wait(self._config, source, pipeline, names, ARRIVAL_TIMEOUT)
            if waited.reason is not None:
                self._console.print(Text.assemble(("✗ ", "bold red"), waited.reason))
                return 1
            return self._compare()

    def _work(self, server: ServerProcess, shopkeeper: Connection, watch: FollowersWatch, seconds: float) -> None:
        closing = threading.Event()
        threads: list[ShopClerk | ShopVisitors] = [
            *(ShopClerk(roles.writing(self._config), number, closing) for number in range(1, shop.CLERKS + 1)),
            ShopVisitors(roles.writing(self._config), closing),
        ]
        with followed_screen.shown(self._console) as show:
            pending = list(self._incidents(shopkeeper))
            began, headline = time.monotonic(), "the shop is open, and its followers are filled"
            try:
                for thread in threads:
                    thread.start()
                while (passed := time.monotonic() - began) < seconds:
                    if pending and passed >= pending[0].share * seconds:
                        incident = pending.pop(0)
                        incident.happen()
                        headline = incident.text
                    show(watch.read_state(), passed, seconds, headline)
                    server.require_alive()
                    _require_health(threads)
                    time.sleep(FRAME)
            finally:
                closing.set()
                for thread in threads:
                    thread.join(_CLERK_TIMEOUT)
            _require_health(threads)
            for incident in pending:  # on a slow machine, a follower that was killed needs time to return
                incident.happen()
            until = time.monotonic() + ARRIVAL_TIMEOUT
            while not followed_screen.has_arrived(state := watch.read_state()) and time.monotonic() < until:
                show(state, seconds, seconds, "the shop is closed; the last changes arrive")
                server.require_alive()
                time.sleep(FRAME)
            show(state, seconds, seconds, "the shop is closed; every change has arrived")

    def _incidents(self, shopkeeper: Connection) -> Iterator[DemoIncident]:
        """Yield the incidents in the order of time."""
        table, victim = f"shop.{visitors.TABLE}", self._clusters[-1]

        def run(*statements: str) -> None:
            for statement in statements:
                shopkeeper.execute(statement.encode())

        added = f"alter table {table} add column device text"
        update = "update shop.visits set device = 'phone' where id % 3 = 0"
        renamed = f"alter table {table} rename column at to seen_at"
        yield DemoIncident(0.25, f"{table} is truncated", lambda: run(f"truncate {table}"))
        yield DemoIncident(0.4, f"{victim.name} is killed", victim.kill)
        yield DemoIncident(0.5, f"{table} gets a column", lambda: run(added, update))
        yield DemoIncident(0.6, f"a column of {table} is renamed", lambda: run(renamed))
        yield DemoIncident(0.75, f"{victim.name} is started again", victim.start)

    def _compare(self) -> int:
        """Compare all databases by plain SQL, independently of how followers work."""
        databases = [("source", self._config.source_reading), *((each.name, each.dsn) for each in self._clusters)]
        found = {name: sums(dsn) for name, dsn in databases}
        expected = found["source"]
        differing = [
            f"{name}: shop.{table} has {drawing.count(has, 'row')}, "
            f"{'' if has != rows.rows else 'other '}of {rows.rows} at the source"
            for name, of in found.items()
            for table, rows in expected.items()
            if of.get(table) != rows
            for has in [of[table].rows if table in of else 0]
        ]
        if differing:
            self._console.print(f"✗ {drawing.count(len(differing), 'table')} not as at the source", style="bold red")
            for line in differing:
                self._console.print(f"  {line}")
            return 1
        self._console.print(f"✓ {len(found)} databases are equal", style="bold green")
        rows = ", ".join(f"{each.rows:,} {table}" for table, each in expected.items())
        self._console.print(f"  {rows}: each row as text, by plain SQL, in {', '.join(found)}.")
        return 0


def folder(config: Config) -> Path:
    """Return the folder of the followers' clusters."""
    return config.data_dir / "followers"


def sums(dsn: str) -> dict[str, TableTotals]:
    """Return the row count and checksum of each table of the shop."""
    with connections.connect(dsn, "database", name="demo", settings=session_settings.COPY) as connection:
        return {name: _sum(connection, name) for name in (*shop.TABLES, visitors.TABLE)}


def _sum(connection: Connection, table: str) -> TableTotals:
    query = sql.SQL(
        "select count(*), coalesce(md5(string_agg(t::text, '|' order by t::text collate \"C\")), '') from shop.{} t"
    )
    rows, checksum = connection.execute(query.format(sql.Identifier(table))).fetchall()[0]
    return TableTotals(rows, checksum)


def _connect(dsn: str) -> Connection:
    return connections.connect(dsn, "database", name="demo")


def _require_health(threads: Sequence[ShopClerk | ShopVisitors]) -> None:
    for thread in threads:
        if thread.failure:
            raise PipelineError(f"{thread.name} failed: {thread.failure}")
