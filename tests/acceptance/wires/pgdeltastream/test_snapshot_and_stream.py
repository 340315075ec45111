"""Snapshot and stream together are the table: random writers, pages read side by side, and what breaks meanwhile."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import psycopg
import pytest

from tests.fixtures.delta_stream import Client
from tests.fixtures.postgres import MAJORS, Cluster
from tests.fixtures.rough_wire import Rough, running
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually
from tests.fixtures.wire_histories import TABLES, Follower, Writer, content, make
from tests.fixtures.wire_place import Place, drop_slots

pytestmark = pytest.mark.xdist_group("pgdeltastream")
WRITERS, FOLLOWERS = 3, 2
Shake = Callable[[str], None]


def play(dsn: str, client: Client, seed: int, seconds: float, shake: Shake = lambda _: None) -> str:
    """Writers all the time, two clients that begin at different moments; each must end with the tables' rows."""
    chance = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as source:
        make(source)
    followers = [Follower(client, 100 * seed + number, shake) for number in range(FOLLOWERS)]
    starts = [chance.uniform(0, seconds / 3) for _ in followers]
    ends: list[float] = []
    with ThreadPoolExecutor(FOLLOWERS) as pool, ExitStack() as stack:
        running = [
            pool.submit(_follow, follower, start, dsn, ends) for follower, start in zip(followers, starts, strict=True)
        ]
        for number in range(WRITERS):
            stack.enter_context(Writer(dsn, seed, number))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not any(each.done() and each.exception() for each in running):
            time.sleep(0.05)
        stack.close()
        ends.append(time.monotonic())
        for each in running:
            each.result(90)
    changed = sum(len(rows) for follower in followers for rows in follower.rows.values())
    return f"seed {seed}: {FOLLOWERS} sessions, {sum(f.inits for f in followers)} inits, {changed} rows at the end"


def _follow(follower: Follower, start: float, dsn: str, ends: list[float]) -> None:
    time.sleep(start)
    follower.begin()

    def whole() -> bool:
        if not ends:
            return False
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as source:
            return all(content(source, table) == follower.rows[table] for table in TABLES)
        return False

    last, is_whole = time.monotonic(), False

    def done() -> bool:
        nonlocal last, is_whole
        if not is_whole and time.monotonic() > last + 0.2:
            last, is_whole = time.monotonic(), whole()
            assert is_whole or not ends or last < ends[0] + 60, f"not as the tables: {_differences(follower, dsn)}"
        return is_whole

    follower.follow(done)


def _differences(follower: Follower, dsn: str) -> str:
    with psycopg.connect(dsn) as source:
        said = []
        for table in TABLES:
            theirs, ours = content(source, table), follower.rows[table]
            wrong = [key for key in theirs.keys() & ours.keys() if theirs[key] != ours[key]]
            said.append(
                f"{table}: missing {sorted(theirs.keys() - ours.keys())[:5]}, "
                f"too many {sorted(ours.keys() - theirs.keys())[:5]}, other {sorted(wrong)[:5]}"
            )
    return "; ".join(said)


class Shaker:
    """Breaks one of these at some of the moments at which a follower says where it is."""

    def __init__(self, seed: int, acts: list[Callable[[], None]], most: int) -> None:
        self._random = random.Random(f"shaker {seed}")
        self._acts = acts
        self._left = most
        self.done: list[str] = []

    def __call__(self, _moment: str) -> None:
        if self._left and self._random.random() < 0.6:
            self._left -= 1
            act = self._random.choice(self._acts)
            self.done.append(act.__name__.strip("_"))
            act()


def killers(server: Serving, dsn: str) -> list[Callable[[], None]]:
    """The API's process, and the walsenders of sessions, killed."""

    def _api() -> None:
        with suppress(ProcessLookupError, AssertionError):
            os.kill(server.child_pid("api"), signal.SIGKILL)

    def _walsender() -> None:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as source:
            source.execute(
                "select pg_terminate_backend(active_pid) from pg_replication_slots"
                " where slot_name like 'delta%' and active_pid is not null and database = current_database()"
            )

    return [_api, _walsender]


@pytest.mark.parametrize("seed", [1, 2])
def test_they_are_the_table(place: Place, seed: int) -> None:
    print(play(place.source_dsn, place.client, seed, 1.2))


def test_they_are_the_table_though_the_role_and_walsenders_are_killed(place: Place) -> None:
    shaker = Shaker(3, killers(place.server, place.source_dsn), most=3)
    print(play(place.source_dsn, place.client, 3, 2.5, shaker), shaker.done)
    eventually(lambda: place.server.get("/healthz").is_success, errors=(Exception,))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_seeds(place: Place) -> None:
    for seed in range(100, 120):
        print(play(place.source_dsn, place.client, seed, 4.0), flush=True)


@pytest.fixture(params=MAJORS, ids=lambda major: f"pg{major}")
def rough(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rough]:
    home = tmp_path_factory.mktemp("pg")
    with running(request.param, cluster, tmp_path_factory.mktemp("rough"), home / "a") as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_seeds_with_kills_and_restarts(rough: Rough) -> None:
    dsn = rough.postgres.tcp_dsn("shop")

    def _fast() -> None:
        rough.postgres.stop("fast")
        rough.postgres.start()

    def _immediate() -> None:
        rough.postgres.stop("immediate")
        rough.postgres.start()

    def _sigkill() -> None:
        """After which the source ends everybody and recovers."""
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as source:
            query = "select active_pid from pg_replication_slots where slot_name like 'delta%' and active"
            for (pid,) in source.execute(query).fetchall():
                os.kill(pid, signal.SIGKILL)

    for seed in range(200, 207):
        shaker = Shaker(seed, [*killers(rough.server, dsn), _fast, _immediate, _sigkill], most=5)
        print(play(dsn, rough.client, seed, 8.0, shaker), shaker.done, flush=True)
        with psycopg.connect(dsn, autocommit=True) as source:
            drop_slots(source)  # there is room for this many sessions at once
