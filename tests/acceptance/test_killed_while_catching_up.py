"""Catching up with several slots survives `kill -9` at any moment, of one process or of all."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.catching_up import CatchingUp, catching_up, kill_all
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import alive
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("catching up")
LONGEST = 4.0
"""Seconds after which a process is killed, at most: a catch-up takes about as long."""


@pytest.fixture
def stage(quiet_cluster: Cluster, cluster: Cluster, tmp_path: Path) -> Iterator[CatchingUp]:
    with catching_up(quiet_cluster, cluster, tmp_path) as made:
        yield made


def stop(_: CatchingUp, server: Serving) -> None:
    server.process.terminate()


def kill(_: CatchingUp, server: Serving) -> None:
    kill_all(server)


def cut_off(stage: CatchingUp, _: Serving) -> None:
    """All sessions at the pipeline database are ended, the one that holds the first worker too."""
    stage.log.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize("end", [kill, *(pytest.param(each, marks=pytest.mark.long) for each in (stop, cut_off))])
def test_ended_once_there_is_a_plan(stage: CatchingUp, end: Callable[[CatchingUp, Serving], None]) -> None:
    with stage.first_worker_held():
        server = stage.serve()
        stage.streams()
        plan = stage.fall_behind()
        late = stage.write_one()
        eventually(lambda: stage.staged(late), 60)
        end(stage, server)
        if end is not cut_off:
            assert stage.planned() == plan
    if end is stop:
        assert server.process.wait(120) == 0
    if end is not cut_off:
        stage.serve()
    stage.caught_up()
    stage.require_exact()


def test_killed_helpers_and_a_killed_role_go_on_where_they_were(stage: CatchingUp) -> None:
    with stage.first_worker_held():
        server = stage.serve()
        stage.streams()
        stage.fall_behind()
        running = eventually(lambda: helpers(server))
        kill_each(running.values())
        again = eventually(lambda: {*helpers(server).values()} - {*running.values()})  # the last part's, at least
        kill_each(again)
        late = stage.write_one()
        eventually(lambda: stage.staged(late), 60)
        os.kill(server.child_pid("replication"), signal.SIGKILL)
        late = stage.write_one()
        eventually(lambda: stage.staged(late), 60)
    stage.caught_up()
    stage.require_exact()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments_five_times_over(stage: CatchingUp, seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(5):
        server = stage.serve(catchup_max_slots=chosen.choice([2, 4]))
        stage.streams()
        stage.write(chosen.uniform(2, 30))
        time.sleep(chosen.uniform(0, LONGEST))
        kill_some(server, chosen)
        stage.write(chosen.uniform(0, 5))
        kill_all(server)
    stage.serve()
    stage.caught_up(200)
    stage.require_exact()


def kill_some(server: Serving, chosen: random.Random) -> None:
    """One of its processes, or none; the rest goes on for a while."""
    pids = [*helpers(server).values(), *server.children().values(), 0]
    if pid := chosen.choice(pids):
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
        time.sleep(chosen.uniform(0, LONGEST))


def kill_each(pids: Iterable[int]) -> None:
    """But for those that have done their part meanwhile."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def helpers(server: Serving) -> dict[int, int]:
    """Worker to pid, of those that stage a part now."""
    named = {name.removeprefix("catch-up "): pid for name, pid in server.children().items()}
    return {int(worker): pid for worker, pid in named.items() if worker.isdigit()}
