"""Tables that the reading role may not read: each is named with the remedy, and the others are read."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.operate import role_warnings
from pipeline.operate.preflight import check
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
                assert f'permission denied for table t; grant user "{role}" select on it' in reason(reading, "t")
                reading.finish("hidden", "failed")
                assert "affected by row-level security policy" in reason(reading, "hidden")
                require_named(poor, role)
                owner.execute(f"grant select on t to {role}; alter role {role} bypassrls".encode())
                assert [each for each in check.run(poor) if each.name == "snapshot rights"] == []
                assert role_warnings.read(poor) == []
        finally:
            owner.execute(f"drop publication {role}; drop owned by {role}; drop role {role}".encode())


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
