"""Whatever is killed while a backlog is read in parts, at whatever moment: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import alive, children, title
from tests.fixtures.two_logs import BEHIND, PATIENCE, CatchingUp, catching_up, role
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def stage(clusters: Callable[[int], Cluster]) -> Iterator[CatchingUp]:
    with catching_up(clusters(18), clusters(16)) as made:
        yield made


def named(pid: int) -> list[int]:
    """The helpers of a role that have begun."""
    return [child for child in children(pid) if "catch-up" in title(child)]


def kill(pid: int) -> None:
    """And those that it has started see that, and go."""
    helpers = children(pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(alive, helpers)))


def test_a_helper_that_is_killed_and_a_role_that_is_killed_with_all_its_helpers(stage: CatchingUp):
    stage.backlog(400, BEHIND)
    end = stage.end()
    with role(stage.many) as first:
        eventually(lambda: stage.parts(), PATIENCE)
        (victim, *_) = eventually(lambda: children(first.pid), PATIENCE)
        os.kill(victim, signal.SIGKILL)
        kill(first.pid)
    assert stage.parts(), "the plan is still there"
    with role(stage.many) as second:
        eventually(lambda: named(second.pid) or not stage.parts(), PATIENCE)
        stage.source.execute("insert into item values (nextval('ids'), 'after all that')")
        stage.wait_until_drained(stage.many, end)
        stage.wait_until_drained(stage.many, stage.end())
    stage.require_equal_logs()


def test_a_role_that_is_told_to_stop_leaves_the_plan_to_the_next(stage: CatchingUp):
    stage.backlog(400, BEHIND)
    with role(stage.many) as first:
        eventually(lambda: stage.parts(), PATIENCE)
        first.terminate()
        assert first.wait(60) == 0
    with role(stage.many):
        stage.wait_until_drained(stage.many, stage.end())
    stage.require_equal_logs()
    eventually(lambda: stage.slots() == [stage.many.slot])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_at_twenty_random_moments(stage: CatchingUp):
    moment = random.Random(7)
    for _ in range(20):
        stage.backlog(moment.randrange(50, 400))
        with role(stage.many) as running:
            eventually(lambda: "replication" in title(running.pid), PATIENCE)
            wait = moment.random() * 6
            _after(wait)
            victims = [running.pid, *named(running.pid)]
            victim = moment.choice(victims)
            os.kill(victim, signal.SIGKILL)
            _after(moment.random())
            kill(running.pid)
    stage.drain(stage.many)
    stage.require_equal_logs()


@pytest.mark.long
def test_all_sessions_at_the_pipeline_database_are_ended(stage: CatchingUp):
    """The role ends with its helpers, and the next one goes on with the plan."""
    stage.backlog(400, BEHIND)
    with role(stage.many) as running:
        eventually(lambda: stage.parts(), PATIENCE)
        with psycopg.connect(stage.many.database, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        running.wait(60)
    with role(stage.many):
        stage.wait_until_drained(stage.many, stage.end())
    stage.require_equal_logs()


def _after(seconds: float) -> None:
    threading.Event().wait(seconds)
