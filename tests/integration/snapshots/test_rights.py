"""Tables that the reading role may not read: each is named with the remedy, and the others are read."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import TableRefusedError
from pipeline.operate import role_warnings
from pipeline.operate.preflight import check
from pipeline.operate.preflight.role_sql import SourceRoles
from pipeline.postgres import connections, reading_session, session_settings
from pipeline.snapshots import start
from tests.fixtures.postgres import unique
from tests.fixtures.snapshotting import Snapshotting, snapshotting


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def test_a_table_without_rights_is_named_and_the_others_go_on(config: Config, source_dsn: str):
    role = unique("reader")
    dsn = make_conninfo(source_dsn, user=role)
    with psycopg.connect(source_dsn, autocommit=True) as owner:
        owner.execute(f"create role {role} login replication".encode())
        try:
            for name in ("t", "u", "hidden"):
                owner.execute(f"create table {name} (id int primary key); insert into {name} values (1)".encode())
            owner.execute("alter table hidden enable row level security")
            owner.execute(f"create publication {role} for table t, u, hidden".encode())
            owner.execute(f"grant select on u, hidden to {role}".encode())
            poor = config.model_copy(update={"source_dsn": type(config.source_dsn)(dsn), "publication": role})  # type: ignore[misc]
            with snapshotting(poor) as reading:
                reading.finish("u")
                reading.finish("t", "failed")
                grant = f'grant select on public.t to "{role}"; then start it again'
                assert reason(reading, "t") == f'user "{role}" may not read public.t; run: {grant}'
                reading.finish("hidden", "failed")
                assert f'hidden from user "{role}"; run: alter role "{role}" with bypassrls' in reason(
                    reading, "hidden"
                )
                require_named(poor, role)
                owner.execute(f"grant select on t to {role}; alter role {role} bypassrls".encode())
                assert [each for each in check.run(poor) if each.name == "snapshot rights"] == []
                assert role_warnings.read(poor) == []
                owner.execute("create table w (id int primary key); insert into w values (1)")
                owner.execute(f"grant select on w to {role}; alter publication {role} add table w".encode())
                owner.execute("revoke usage on schema public from public")
                reading.finish("w", "failed")
                usage = f'run: grant usage on schema public to "{role}"; then start it again'
                assert reason(reading, "w") == f'user "{role}" may not use the schema of public.w; {usage}'
        finally:
            owner.execute(f"drop publication {role}; drop owned by {role}; drop role {role}".encode())


COLUMNS = """
    create table t (id int primary key, note text, kind int, secret text);
    insert into t select n, 'x', n % 2, 's' from generate_series(1, 4) n;
    create table parted (id int primary key, secret text) partition by range (id);
    create table part partition of parted for values from (0) to (9);
    insert into parted values (1, 's')
"""


@pytest.fixture
def granted(config: Config, source_dsn: str) -> Iterator[tuple[psycopg.Connection, Config]]:
    """A publication with lists of columns, a connection of its owner, and settings of roles that may read nothing."""
    role = unique("reader")
    with psycopg.connect(source_dsn, autocommit=True) as owner:
        owner.execute(f"create role {role} login replication".encode())
        owner.execute(COLUMNS.encode())
        lists = "t (id, note) where (kind = 1), part (id)"
        owner.execute(f"create publication {role} for table {lists} with (publish = 'insert')".encode())
        dsn = SecretStr(make_conninfo(source_dsn, user=role))
        try:
            yield owner, config.model_copy(update={"source_dsn": dsn, "publication": role})
        finally:
            owner.execute(f"drop publication {role}; drop owned by {role}; drop role {role}".encode())


def test_a_snapshot_reads_only_published_columns_and_those_of_the_filter(
    granted: tuple[psycopg.Connection, Config],
):
    owner, poor = granted
    role = poor.publication
    grants = [
        f'grant select ("id") on public.part to "{role}"',
        f'grant select ("id", "note", "kind") on public.t to "{role}"',
    ]
    found = [each for each in check.run(poor) if each.name == "snapshot rights"]
    assert [each.sql for each in found] == [grants[:1], grants[1:]]
    assert found[1].text == f'user "{role}" may not read id, note, kind of public.t'
    printed = check.missing_roles(poor, SourceRoles(role, role))
    assert [each for finding in printed for each in finding.sql if "select" in each and "secret" in each] == []
    for grant in grants:
        owner.execute(grant.encode())
    assert [each.text for each in check.run(poor) if each.name == "snapshot rights"] == []
    assert [each.sql for each in check.missing_roles(poor, SourceRoles(role, role)) if "t (" in str(each.sql)] == []
    with snapshotting(poor) as reading:
        reading.finish("t")
        reading.finish("parted")
        assert reading.events("t", "action, record") == [("read", {"id": n, "note": "x"}) for n in (1, 3)]
        assert reading.events("parted", "record") == [({"id": 1},)]
        owner.execute(f"revoke select (note) on t from {role}".encode())
        with (
            reading_session.connect(poor, name="test") as source,
            connections.connect(poor.database, "pipeline") as log,
            pytest.raises(
                TableRefusedError, match=r'may not read note of public.t; run: grant select \("note"\) on public'
            ),
        ):
            start.start(poor, source, log, "t")


@pytest.mark.parametrize("altering", [True, False])
def test_a_table_is_held_for_a_role_that_may_read_some_columns(source_dsn: str, altering: bool):
    """`altering`: a session waits for the table by then."""
    role = unique("reader")
    with psycopg.connect(source_dsn, autocommit=True) as owner, psycopg.connect(source_dsn) as other:
        owner.execute(f"create role {role} login; {COLUMNS}; grant select (id) on t to {role}".encode())
        dsn = make_conninfo(source_dsn, user=role)
        try:
            with connections.connect(
                dsn, "source", settings=session_settings.SNAPSHOT, prepare_threshold=None
            ) as source:
                reading_session.begin(source, session_settings.SNAPSHOT)
                if altering:
                    other.execute("lock table t in access exclusive mode")
                    with pytest.raises(psycopg.errors.LockNotAvailable):
                        reading_session.lock(source, [sql.SQL("public.t")], session_settings.SNAPSHOT, "50ms")
                    return
                reading_session.lock(source, [sql.SQL("public.t")], session_settings.SNAPSHOT, "2s")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    other.execute("set local lock_timeout = '50ms'; drop table t")
                assert source.execute("select count(id) from public.t").fetchone() == (4,)
        finally:
            other.rollback()
            owner.execute(f"drop owned by {role}; drop role {role}".encode())


def reason(reading: Snapshotting, table: str) -> str:
    """Why the reading of the table has failed."""
    row = reading.row(table)
    assert row is not None
    return str(row[1])


def require_named(config: Config, role: str) -> None:
    """Check and status say what the role lacks at the tables whose reading has failed, and what to run."""
    hidden = f'row security hides rows of public.hidden from user "{role}"', f'alter role "{role}" with bypassrls'
    unread = f'user "{role}" may not read public.t', f'grant select on public.t to "{role}"'
    found = [each for each in check.run(config) if each.name == "snapshot rights"]
    assert [(each.level, each.text, each.sql) for each in found] == [
        ("warning", text, [grant]) for text, grant in (hidden, unread)
    ]
    expected = [
        f"{'; '.join(each)}; then: `pipeline backfill start {table}`"
        for each, table in ((hidden, "public.hidden"), (unread, "public.t"))
    ]
    assert [f"{each.text}; {each.remedy}" for each in found] == expected
    assert role_warnings.read(config) == expected
