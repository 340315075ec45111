"""`pipeline migrate --reader ROLE`: a role that sees the events, and nothing that is private."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.config.settings import load
from pipeline.errors import ConfigError
from pipeline.operate.repair import reader_role
from tests.fixtures.aging_log import PARTITION, aging_log
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import run_command

Ensure = Callable[..., str]


@pytest.fixture
def role(cluster: Cluster) -> Iterator[str]:
    """A name for a role, with a character that has to be quoted; it is gone after the test."""
    name = unique("a reader")
    yield name
    with cluster.connect() as connection:
        connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def ensure(database_dsn: str, role: str) -> Iterator[Ensure]:
    """What the command does after the migration; the role is free to be dropped afterwards."""

    def run(reader: str = role, events_table: str = "public.sequin_events") -> str:
        return "\n".join(reader_role.ensure(load(database_dsn=database_dsn, events_table=events_table), reader))

    yield run
    with psycopg.connect(database_dsn, autocommit=True) as owner:
        if owner.execute("select from pg_roles where rolname = %s", [role]).fetchone() is not None:
            owner.execute(sql.SQL("reassign owned by {} to current_user").format(sql.Identifier(role)))
            owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))


@pytest.fixture
def owner(database_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        yield connection


def connect(dsn: str, role: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(dsn, user=role), autocommit=True)


def private(owner: psycopg.Connection) -> list[str]:
    """Every table and view of the pipeline but the events."""
    rows = owner.execute(
        "select format('%I.%I', relnamespace::regnamespace, relname) from pg_class where relkind in ('r', 'p', 'v')"
        " and relnamespace::regnamespace::text in ('pipeline', 'public') and relname <> 'sequin_events' order by 1"
    )
    return [name for (name,) in rows]


def refuses(reader: psycopg.Connection, statement: str) -> bool:
    try:
        reader.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def test_a_reader_sees_the_events_and_hears_of_new_ones(
    ensure: Ensure, database_dsn: str, owner: psycopg.Connection, role: str, tmp_path: Path
):
    done = run_command("migrate", "--reader", role, folder=tmp_path, database_dsn=database_dsn, source_dsn=database_dsn)
    assert done.returncode == 0, done.stderr
    assert f'role "{role}" was created: it may read public.sequin_events' in done.stdout
    assert f'set one in psql: \\password "{role}"' in done.stdout
    with connect(database_dsn, role) as reader, aging_log(database_dsn) as log:
        reader.execute("listen sequin_events")
        log.add(3 * PARTITION)
        owner.execute("notify sequin_events, 'there'")
        assert [notify.payload for notify in reader.notifies(timeout=60, stop_after=1)] == ["there"]
        assert reader.execute("select count(*) from sequin_events").fetchone() == (3 * PARTITION,)
        log.add(3 * PARTITION)
        assert reader.execute("select max(seq) from sequin_events").fetchone() == (6 * PARTITION,), "new partitions too"


def test_a_reader_sees_nothing_private_and_writes_nothing(
    ensure: Ensure, database_dsn: str, owner: psycopg.Connection, role: str
):
    ensure()
    with aging_log(database_dsn) as log:
        log.add(1)
    names = private(owner)
    assert {"public.wal_events", "public.consumer_records", "pipeline.sources", "pipeline.events"} <= set(names)
    with connect(database_dsn, role) as reader:
        assert [name for name in names if not refuses(reader, f"select from {name}")] == []
        for statement in (
            "delete from sequin_events",
            "update sequin_events set seq = 0",
            "insert into sequin_events select * from sequin_events",
            "truncate sequin_events",
            "select nextval('sequin_events_seq_seq')",
            "select * from pipeline.receive('c')",
            "select pipeline.create_consumer('c')",
            "create table public.mine (id int)",
        ):
            assert refuses(reader, statement), statement


def test_a_second_time_brings_the_rights_up_to_date(
    ensure: Ensure, database_dsn: str, owner: psycopg.Connection, role: str
):
    ensure()
    name = sql.Identifier(role)
    owner.execute(sql.SQL("grant usage on schema pipeline to {}").format(name))
    owner.execute(sql.SQL("grant select on pipeline.sources to {}").format(name))
    owner.execute(sql.SQL("grant delete on sequin_events to {}").format(name))
    owner.execute(sql.SQL("revoke select on sequin_events from {}").format(name))
    said = ensure()
    assert f'role "{role}" is up to date' in said
    assert "password" not in said
    with connect(database_dsn, role) as reader:
        reader.execute("select from sequin_events")
        assert refuses(reader, "select from pipeline.sources")
        assert refuses(reader, "delete from sequin_events")


def test_an_events_table_elsewhere_is_what_the_reader_sees(ensure: Ensure, database_dsn: str, role: str, owner):
    owner.execute("create schema audit")
    ensure(events_table="audit.log")
    with connect(database_dsn, role) as reader:
        reader.execute("select from audit.log")
        assert refuses(reader, "select from sequin_events")
        assert refuses(reader, "delete from audit.log")


def test_a_superuser_is_refused_with_a_plain_line(owner: psycopg.Connection, database_dsn: str, tmp_path: Path):
    user = owner.info.user
    done = run_command("migrate", "--reader", user, folder=tmp_path, database_dsn=database_dsn, source_dsn=database_dsn)
    assert done.returncode == 2
    assert done.stderr == (
        f'pipeline: role "{user}" would see more than the events: it is a superuser; use another role\n'
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("create role {}; alter table public.sequin_events owner to {}", "it owns the server's tables"),
        ("create role {} in role pg_read_all_data", "it is a member of pg_read_all_data"),
        (
            "create role {}; grant select on pipeline.sources to public; grant usage on schema pipeline to public",
            "may use more than the events: pipeline.sources; revoke that from public",
        ),
    ],
    ids=["owner", "reads all", "public"],
)
def test_who_may_more_than_read_the_events_is_refused(
    ensure: Ensure, owner: psycopg.Connection, role: str, make: str, reason: str
):
    owner.execute(sql.SQL(make).format(*[sql.Identifier(role)] * make.count("{}")))
    with pytest.raises(ConfigError, match=re.escape(reason)):
        ensure()


@pytest.mark.parametrize("name", ["", "x" * 64, "pg_monitor", "public"])
def test_a_name_that_cannot_be_a_reader_is_refused(ensure: Ensure, name: str):
    with pytest.raises(ConfigError, match=r"is not a valid name of a role|its name is reserved"):
        ensure(name)


def test_a_role_that_may_not_log_in_stays_so_and_that_is_said(ensure: Ensure, owner: psycopg.Connection, role: str):
    owner.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    assert f'it may not log in; if it should: alter role "{role}" login' in ensure()
