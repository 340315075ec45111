"""The two roles that `check --sql --roles` prints are all that a server needs at its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.followers import run
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

MAKE = """
create schema shop authorization {owner};
set role {owner};
create domain shop.number as int check (value > 0);
create table shop.orders (id shop.number primary key, state text, total numeric(10, 2));
insert into shop.orders select i, 'new', i from generate_series(1, 50) i;
create table shop.secret (id int primary key, word text);
insert into shop.secret values (1, 'x');
alter table shop.secret enable row level security;
create table shop.parted (id int primary key) partition by range (id);
create table shop.part partition of shop.parted for values from (0) to (100);
insert into shop.parted values (1), (2);
reset role;
"""
APPLIER = """
create role {applier} login;
grant create on database {there} to {applier};
grant set on parameter session_replication_role to {applier};
create schema shop authorization {applier};
create domain shop.number as int check (value > 0);
alter domain shop.number owner to {applier};
"""


@pytest.fixture
def source_cluster(any_cluster: Cluster) -> Cluster:
    return any_cluster


@dataclass
class Place:
    """A source with tables of one owner. `given`: the settings of commands and of the server."""

    admin: str
    source: psycopg.Connection
    log: psycopg.Connection
    follower: str
    folder: Path
    names: dict[str, str]
    given: dict[str, Any] = field(default_factory=dict)

    def command(self, *arguments: str, status: int | None = 0, **settings: object) -> str:
        done = run_command(*arguments, folder=self.folder, **{**self.given, **settings})
        assert status in (None, done.returncode), done
        return done.stdout

    def missing(self) -> str:
        """What an administrator has to run."""
        roles = "{first},{reader}".format(**self.names)
        return self.command("check", "--sql", "--roles", roles, source_dsn=self.admin, source_read_dsn=self.admin)

    def run(self, statements: str) -> None:
        self.source.execute(statements.format(**self.names).encode())


@pytest.fixture
def place(source_dsn: str, database_dsn: str, follower_dsn: str, slot_name: str, tmp_path: Path) -> Iterator[Place]:
    names = {name: unique(name) for name in ("owner", "first", "reader", "applier")}
    names["database"], names["there"] = (str(conninfo_to_dict(dsn)["dbname"]) for dsn in (source_dsn, follower_dsn))
    given = {"database_dsn": database_dsn, "slot": slot_name, "source_dsn": source_dsn}
    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        made = Place(source_dsn, source, log, follower_dsn, tmp_path, names, given)
        made.run("create role {owner}")
        made.run(MAKE)
        run(follower_dsn, APPLIER.format(**names))
        try:
            yield made
        finally:
            made.run("drop owned by {owner}, {first}, {reader} cascade; drop role {owner}, {first}, {reader}")
            gone = "drop owned by {applier} cascade; revoke set on parameter session_replication_role from {applier}"
            run(follower_dsn, f"{gone}; drop role {{applier}}".format(**names))


@pytest.mark.long
@pytest.mark.parametrize("any_cluster", [18, 16], indirect=True)
def test_two_small_roles_are_enough(place: Place, serve: Callable[..., Serving]) -> None:
    assert "warning: user" in place.command("status", status=None)
    place.source.execute(place.missing().encode())
    for setting, role in (("source_dsn", "first"), ("source_read_dsn", "reader")):
        place.given[setting] = make_conninfo(place.admin, user=place.names[role])
    assert place.missing() == ""
    server = serve(**place.given, wires="pgdeltastream", snapshot_workers=1)
    require_that_rows_are_read(place, server)
    require_that_a_follower_follows(place)
    assert "warning: user" not in place.command("status")
    place.source.execute(place.missing().encode())  # the mark, which the small role cannot set
    assert json.loads(place.command("status", "--json"))["slot_marked"] is True
    assert "serve.superuser" not in server.log()
    assert server.stop() == 0
    place.given["source_read_dsn"] = place.admin
    assert "serve.superuser" in serve(**place.given).log()
    assert "shop.orders belongs to" in place.command("status")


def require_that_rows_are_read(place: Place, server: Serving) -> None:
    events = b"select from sequin_events where source_table_schema = 'shop'"
    eventually(lambda: place.log.execute(events).rowcount == 53)
    place.run("insert into shop.orders values (51, 'new', 51)")
    eventually(lambda: place.log.execute(events).rowcount == 54)
    place.command("verify")
    eventually(lambda: place.command("verify", "--content"))
    place.command("backfill", "start", "shop.orders", "--differences", "--wait")
    wanted = {"slotName": server.get("/v1/init").json()["slotName"], "table": "shop.orders", "offset": 0, "limit": 60}
    page = httpx.post(f"http://127.0.0.1:{server.port}/v1/snapshot/data", json=wanted)
    assert (page.status_code, len(page.json())) == (200, 51), page.text


def require_that_a_follower_follows(place: Place) -> None:
    dsn = make_conninfo(place.follower, user=place.names["applier"])
    place.command("followers", "add", "copy", "--dsn", dsn, "--schema", "create")
    place.command("followers", "wait", "copy")
    place.command("followers", "verify", "copy")
    place.run("set role {owner}; alter table shop.secret add column more int; reset role")
    place.run("insert into shop.secret values (2, 'y', 3)")
    place.command("followers", "wait", "copy")
    with psycopg.connect(place.follower) as follower:
        rows = follower.execute("select id, more from shop.secret order by id").fetchall()
    assert rows == [(1, None), (2, 3)]
