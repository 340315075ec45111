"""A legacy events table with the server that users run: two boots, new events, plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.log import indexes, table_shape
from tests.fixtures.legacy_tables import ROWS, SHAPES, Shape, fingerprint, old_rows, read_on
from tests.fixtures.postgres import Cluster, free_port, unique
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually


class Served:
    """A source, a pipeline database that only has the old table, and the settings of a server for them."""

    def __init__(self, source_dsn: str, database_dsn: str, shape: Shape, folder: Path) -> None:
        self.source = psycopg.connect(source_dsn, autocommit=True)
        self.log = psycopg.connect(database_dsn, autocommit=True)
        self.shape = shape
        self.folder = folder
        dsns = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": unique("slot")}
        self.settings: dict[str, Any] = {**dsns, "events_table": str(shape.table), "http_port": free_port()}

    def close(self) -> None:
        self.source.close()
        self.log.close()

    def run(self, *arguments: str) -> str:
        """A command's output; it ended well."""
        done = run_command(*arguments, folder=self.folder, **self.settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self, *ids: int) -> None:
        """One life of the server, in which these rows are inserted and arrive."""
        server = Serving(self.folder, self.settings, ("serve",))
        try:
            server.wait_ready()
            for number in ids:
                self.source.execute("insert into orders values (%s)", [number])
            eventually(lambda: self.has_arrived(*ids))
            eventually(self.indexed)
            assert self.run("status")
            server.stop()
        finally:
            server.close()

    def has_arrived(self, *ids: int) -> bool:
        found = [row[3] for row in read_on(self.log, self.shape.table)[ROWS:]]
        return found[len(found) - len(ids) :] == [str(number) for number in ids]

    def indexed(self) -> bool:
        found = table_shape.describe_relation(self.log, self.shape.table)
        return found is not None and indexes.index_exists(self.log, found.oid, indexes.ROW_HISTORY)


@pytest.fixture
def served(shape: Shape, clusters: Callable[[int], Cluster], tmp_path: Path) -> Iterator[Served]:
    server = clusters(15)
    with server.database("source") as source_dsn, server.database("old") as database_dsn:
        made = Served(source_dsn, database_dsn, shape, tmp_path)
        made.source.execute("create table orders (id int primary key)")
        shape.create(made.log)
        yield made
        made.close()


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_legacy_table_is_migrated_at_boot(served: Served, shape: Shape):
    before, highest = old_rows(served.log, shape.table), read_on(served.log, shape.table)[-1][0]
    assert "is from an older version" in served.run("check")
    served.serve(1001, 1002)
    assert old_rows(served.log, shape.table) == before, "old rows are untouched"
    once = fingerprint(served.log, shape.table.schema)
    served.serve(1003)
    assert fingerprint(served.log, shape.table.schema) == once, "the second boot changes nothing"
    new = read_on(served.log, shape.table)[ROWS:]
    assert [row[3] for row in new] == ["1001", "1002", "1003"]
    assert all(seq > highest and lsn is not None for seq, lsn, *_ in new)
    assert old_rows(served.log, shape.table) == before
    assert "3 rows" in served.run("verify")
    assert f"{shape.table} exists" in served.run("check")
