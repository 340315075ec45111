"""The disk of the embedded Postgres fills up while the server runs, and is freed again: said plainly, nothing lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.mounts import tmpfs
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

INSERT = "insert into orders (filler) select repeat('x', 1000) from generate_series(1, 1000)"


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk with room for a fresh cluster and not much more."""
    with tmpfs("size=140m") as folder:
        yield folder
        EmbeddedServer(folder / "data" / "postgres").stop("immediate")


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], capture_output=True, check=False)
    return ballast


def insert(dsn: str, times: int = 1) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(times):
            conn.execute(INSERT)


def ids(dsn: str, query: str) -> list[int]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute(query).fetchall()]


@pytest.mark.long
def test_a_disk_that_fills_up_while_serving(serve: Callable[..., Serving], disk: Path) -> None:
    server = serve(data_dir=disk / "data", source_dsn=None, database_dsn=None)
    embedded = EmbeddedServer(disk / "data" / "postgres")
    source, pipeline = embedded.dsn("source"), embedded.dsn("pipeline")
    with psycopg.connect(source, autocommit=True) as conn:
        conn.execute("create table orders (id bigserial primary key, filler text)")
    eventually(lambda: "table added" in server.log())
    insert(source)

    def all_arrived() -> None:
        written = ids(source, "select id from orders order by id")
        assert ids(pipeline, "select (record ->> 'id')::bigint from sequin_events order by seq") == written

    eventually(all_arrived)
    ballast = fill(disk)
    with pytest.raises(psycopg.Error, match="No space left on device"):
        insert(source, times=100)
    eventually(lambda: any("No space left" in reason for reason in server.get("/readyz").json()["reasons"]), 30)
    ballast.unlink()
    eventually(lambda: insert(source), 30, (psycopg.Error,))
    eventually(all_arrived, 30, (AssertionError, psycopg.Error))
    assert server.process.poll() is None
