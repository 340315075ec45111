"""What a range reads comes after every change that it contains, and before every one that it does not."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pipeline.config import settings
from pipeline.config.settings import Config
from tests.fixtures.postgres import NEWEST, Cluster
from tests.fixtures.snapshotting import Snapshotting, snapshotting

TABLE = "create table t (id int primary key, note text, big text)"
TOAST = "alter table t alter big set storage external"
ROWS = "insert into t select i, 'before', repeat(md5(i::text), 100) from generate_series(1, 9) i"


@pytest.fixture(params=NEWEST)
def source_cluster(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(request.param)


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def require_equal(reading: Snapshotting) -> None:
    reading.wait_for_stream()
    assert reading.folded("t") == reading.table("t")


def test_rows_from_before_are_read_once_and_in_one_place(config: Config):
    with snapshotting(config, TABLE, ROWS) as reading:
        reading.finish("t")
        places = reading.events("t", "action, commit_idx, record_pk")
        assert places == [("read", number, str(number)) for number in range(1, 10)]
        assert len(set(reading.events("t", "commit_lsn, xid, committed_at"))) == 1
        assert reading.row("t") == ("complete", None, 2, 2, 9, 1, 9)
        require_equal(reading)


def test_a_row_that_the_log_has_newer_is_left_out(config: Config, source_dsn: str):
    """A transaction that the snapshot does not see, and that commits before the range does."""
    with snapshotting(config, TABLE, ROWS) as reading, psycopg.connect(source_dsn) as writer:
        reading.begin("t")
        reading.worker.reader._samples.take_sample()
        writer.execute("update t set note = 'newer' where id = 3")
        writer.execute("update t set id = 100 where id = 4")
        writer.execute("delete from t where id = 5")
        store = reading.worker.reader._copy

        def copy_then_commit(*arguments: object) -> None:
            store(*arguments)  # type: ignore[arg-type]
            writer.commit()

        reading.worker.reader._copy = copy_then_commit  # type: ignore[method-assign,assignment]
        assert reading.read() == 9
        reading.worker.reader._copy = store  # type: ignore[method-assign]
        reading.wait_for_stream()
        found = reading.events("t")
        assert [pk for action, pk in found if action == "read"] == ["1", "2", "6", "7", "8", "9"]
        assert [action for action, _ in found[:3]] == ["update", "update", "delete"]
        reading.finish("t")
        require_equal(reading)


def test_what_the_publication_leaves_out_is_not_read(config: Config):
    """Columns, rows, generated columns, and the rows of children, which are separate tables."""
    made = (
        TABLE.replace("big text", "big text, twice int generated always as (id * 2) stored"),
        "create table child () inherits (t)",
        "insert into t select i, 'before', 'secret' from generate_series(1, 9) i",
        "insert into child values (100, 'before', 'secret')",
        "create publication pipeline for table only t (id, note) where (id > 6)",
    )
    with snapshotting(config, *made) as reading:
        reading.finish("t")
        assert reading.events("t", "action, record") == [
            ("read", {"id": number, "note": "before"}) for number in (7, 8, 9)
        ]
        assert reading.state("child") == "not captured"
