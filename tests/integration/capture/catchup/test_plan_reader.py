"""The plan as it is stored, as status shows it, and as the shuffler sees it: one and the same."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from pipeline.capture.catchup import plan_reader, store
from pipeline.capture.catchup.plan import BacklogPart, split_backlog
from pipeline.capture.schema_history import versions
from pipeline.errors import FencedError
from pipeline.operate import status
from pipeline.operate.status import PipelineProgress
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection

SOURCE = uuid.uuid4()


@pytest.fixture
def connection(database_dsn: str) -> Iterator[Connection]:
    """Of a source whose worker has staged everything before 100."""
    with connections.connect(database_dsn, "pipeline database") as connection:
        connection.execute(
            "insert into pipeline.sources (id, system_identifier, database_name, slot) values (%s, '1', 'd', 's')",
            [SOURCE],
        )
        connection.execute(
            "insert into pipeline.replication_progress (source_id, epoch, position, commit_lsn, changes, transactions)"
            " values (%s, 0, 100, 90, 10, 2)",
            [SOURCE],
        )
        connection.execute(
            "insert into pipeline.shuffle_progress (source_id, epoch, commit_lsn) values (%s, 0, 90)", [SOURCE]
        )
        yield connection


def stage(connection: Connection, worker: int, position: int, commit_lsn: int) -> None:
    connection.execute(
        "update pipeline.replication_progress set position = %s, commit_lsn = %s, changes = changes + 5"
        " where source_id = %s and worker = %s",
        [position, commit_lsn, SOURCE, worker],
    )


def shown(connection: Connection) -> PipelineProgress:
    return status._progress(connection, SOURCE)[0]


def test_without_a_plan_there_are_no_parts(connection: Connection) -> None:
    assert plan_reader.read_plan(connection, SOURCE) == []
    assert (shown(connection).staged_lsn, shown(connection).unshuffled) == (100, False)


def test_a_plan_is_stored_once_and_read_as_it_was_made(connection: Connection) -> None:
    parts = split_backlog(100, 400, 3)
    store.add_plan(connection, SOURCE, 1, parts[1:])
    assert plan_reader.read_plan(connection, SOURCE)[1:] == parts[1:]
    with pytest.raises(FencedError):
        store.add_plan(connection, SOURCE, 1, parts[1:])


def test_staged_is_what_nothing_is_missing_before(connection: Connection) -> None:
    store.add_plan(connection, SOURCE, 1, split_backlog(100, 400, 3)[1:])
    stage(connection, 1, 310, 290)
    stage(connection, 2, 350, 340)
    now = shown(connection)
    assert (now.staged_lsn, now.unshuffled, now.staged_changes) == (100, False, 20)
    stage(connection, 0, 205, 190)
    now = shown(connection)
    assert (now.staged_lsn, now.unshuffled, now.staged_changes) == (350, True, 25)


def test_the_shuffler_sees_the_workers_that_are_reached(connection: Connection) -> None:
    chosen = random.Random(7)
    store.add_plan(connection, SOURCE, 1, split_backlog(100, 500, 4)[1:])
    for _ in range(40):
        for part in plan_reader.read_plan(connection, SOURCE):
            position = chosen.choice([part.from_lsn, part.from_lsn + 1, part.until_lsn or 600, 700])
            stage(connection, part.worker, position, 0)
        parts = plan_reader.read_plan(connection, SOURCE)
        rows = connection.execute("select worker from pipeline.reached_workers order by worker").fetchall()
        assert [part.worker for part in parts if part.reached] == [worker for (worker,) in rows]


def test_the_anchor_may_have_staged_beyond_its_end(connection: Connection) -> None:
    store.add_plan(connection, SOURCE, 1, [BacklogPart(1, 200, None, 200)])
    stage(connection, 0, 230, 199)
    anchor, rest = plan_reader.read_plan(connection, SOURCE)
    assert (anchor.worker, anchor.from_lsn, anchor.until_lsn, anchor.complete) == (0, 200, 200, True)
    assert (rest.reached, rest.complete) == (True, False)


def test_a_frozen_helper_holds_no_lock_for_long(
    connection: Connection, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "IDLE_SECONDS", 1)
    frozen = store.connect(database_dsn, "pipeline catch-up 1")
    with pytest.raises(connections.GONE, match="idle-in-transaction timeout"), frozen.transaction():
        assert versions.find(frozen, SOURCE, 0, (1, "")) is None
        with connection.transaction():
            assert versions.find(connection, SOURCE, 0, (1, "")) is None
        frozen.execute("select 1")
