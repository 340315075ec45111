"""A backlog read by several slots at once gives the log that one slot gives, row by row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pipeline.capture.catchup import helper, store
from pipeline.capture.catchup.coordinator import CatchUpCoordinator
from pipeline.capture.catchup.plan import BacklogPart, split_backlog
from pipeline.capture.replication.worker import ReplicationWorker
from pipeline.log.staging.worker_claim import WorkerClaim
from pipeline.postgres import connections
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import stored
from tests.fixtures.two_logs import BEHIND, CatchingUp, catching_up
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def stage(clusters: Callable[[int], Cluster]) -> Iterator[CatchingUp]:
    with catching_up(clusters(18), clusters(16)) as made:
        yield made


AS_FORKED = """
import sys
from pipeline.capture.catchup import helper
from pipeline.server import roles
roles._load(["replication"])
before = set(sys.modules)
code = helper.main()
with open(sys.argv[1], "a") as late:
    late.write(" ".join(sorted(set(sys.modules) - before)) + "\\n")
sys.exit(code)
"""
"""A helper that has imported what the fork server has."""


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(getattr(record, "action", "")) for record in caplog.records]


def test_a_backlog_is_staged_in_parts_and_gives_the_same_log(
    stage: CatchingUp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Worker 0 reads nothing while it is planned who does. And a helper imports nothing that the process has not that
    it is forked from: each would pay for it.
    """
    late = tmp_path / "imported late"
    monkeypatch.setattr(helper, "COMMAND", (sys.executable, "-c", AS_FORKED, str(late)))
    planned, reads = CatchUpCoordinator._begin, []

    async def begin(
        coordinator: CatchUpCoordinator, worker: ReplicationWorker, claim: WorkerClaim, parts: list[BacklogPart]
    ) -> None:
        reads.append(worker.may_read.is_set())
        await planned(coordinator, worker, claim, parts)

    monkeypatch.setattr(CatchUpCoordinator, "_begin", begin)
    stage.backlog(megabytes=BEHIND)
    with caplog.at_level("INFO"):
        stage.drain(stage.many)
    seen = actions(caplog)
    assert "catchup.planned" in seen
    assert seen.count("catchup.absorbed") >= 2
    assert "catchup.done" in seen
    eventually(lambda: stage.slots() == [stage.many.slot])  # copies go with the sessions of their helpers
    assert set(late.read_text().splitlines()) == {""}
    assert set(reads) == {False}
    stage.require_equal_logs()


def test_a_transaction_belongs_to_the_part_in_which_it_commits(stage: CatchingUp):
    """One that is open through the whole backlog, and one that has most of it in itself."""

    with psycopg.connect(stage.many.source) as long:
        long.execute("insert into item values (nextval('ids'), 'first of all')")
        stage.backlog(60)
        stage.source.execute("insert into item select nextval('ids'), repeat('w', 300) from generate_series(1, 3000)")
        stage.backlog(60)
        long.execute("insert into item values (nextval('ids'), 'last of all')")
        long.commit()
    stage.backlog(10)
    stage.drain(stage.many)
    stage.require_equal_logs()


def test_tables_altered_in_the_backlog_have_the_history_of_one_slot(stage: CatchingUp):
    run = stage.source.execute
    run("create table shape (id int primary key, v text)")
    stage.backlog(40)
    for number in range(6):
        run(f"insert into shape (id, v) select g, 'a' from generate_series({number * 100}, {number * 100 + 20}) g")
        run(f"alter table shape add column c{number} int default {number}")
        run(f"update shape set c{number} = 7 where id % 3 = 0")
        stage.backlog(20)
    run("alter table shape rename column v to w")
    run("alter table part rename to parted")
    run("insert into parted values (-1, 5, 'renamed')")
    run("insert into shape (id, w) values (-1, 'b')")
    run("alter table parted rename to part")
    stage.backlog(10)
    stage.drain(stage.many)
    stage.require_equal_logs()


def test_a_plan_that_nobody_is_left_of_is_finished_alone(stage: CatchingUp, caplog: pytest.LogCaptureFixture):
    """All were killed, and no other slot may be opened now."""

    stage.backlog(100)
    with connections.connect(stage.many.database, "pipeline database") as log:
        row = log.execute("select generation from pipeline.replication_progress where worker = 0").fetchone()
        assert row is not None
        plan = split_backlog(stage.staged(stage.many), stage.end(), 3)
        store.add_plan(log, stored(log).id, row[0], plan[1:])
    alone = stage.many.model_copy(update={"catchup_threshold": "off"})
    with caplog.at_level("INFO"):
        stage.drain(alone)
    assert actions(caplog).count("catchup.absorbed") == 2
    stage.require_equal_logs()
