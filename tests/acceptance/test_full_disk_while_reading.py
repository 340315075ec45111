"""The pipeline database's disk fills while a table is read: reading waits, says so, and continues later."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.mounts import tmpfs
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

MB = 2**20
ROWS = """
    insert into t select i, (select string_agg(md5(i::text || j), '') from generate_series(1, 30) j)
    from generate_series(1, 12000) i"""
"""More than there is room for, of a text that cannot be compressed."""
REASON = (
    r"pipeline database \(.*\) refused a statement: could not extend file .*: No space left on device"
    r" \(SQLSTATE 53100\); free some space on its disk; it is tried again"
)


@pytest.fixture
def disk() -> Iterator[Path]:
    with tmpfs("size=120m") as folder:
        yield folder


@pytest.fixture
def database_dsn(database_cluster: Cluster, disk: Path) -> Iterator[str]:
    """A migrated pipeline database on that disk."""
    space, name = sql.Identifier(unique("disk")), unique("events")
    folder = disk / "space"
    folder.mkdir(mode=0o700)
    create = "create database {} template {} tablespace {} strategy file_copy"
    with database_cluster.connect() as admin:
        admin.execute(sql.SQL("create tablespace {} location {}").format(space, str(folder)))
        try:
            admin.execute(
                sql.SQL(create).format(sql.Identifier(name), sql.Identifier(database_cluster.template), space)
            )
            yield database_cluster.dsn(name)
        finally:
            database_cluster.drop(name)
            admin.execute(sql.SQL("drop tablespace {}").format(space))


@pytest.mark.long
def test_the_disk_of_the_pipeline_database_is_full(
    serve: Callable[..., Serving], source: psycopg.Connection, log: psycopg.Connection, disk: Path
) -> None:
    source.execute("alter table t add note text")
    source.execute(ROWS.encode())
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - 4 * MB))
    server = serve()

    def says_why() -> bool:
        row = log.execute("select state, reason from pipeline.snapshots").fetchone()
        return row is not None and row[0] == "reading" and re.fullmatch(REASON, row[1] or "") is not None

    eventually(says_why)
    ballast.unlink()
    eventually(lambda: log.execute("select state from pipeline.snapshots").fetchone() == ("complete",))
    query = "select action, record ->> 'id', record ->> 'note' from sequin_events order by (record ->> 'id')::int"
    rows = source.execute("select 'read', id::text, note from t order by t.id").fetchall()
    assert log.execute(query).fetchall() == rows
    assert server.process.poll() is None
