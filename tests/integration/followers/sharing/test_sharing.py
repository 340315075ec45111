"""Several followers at the head of the log: what each applies is read once for all of them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pipeline.errors import NotFollowableError
from pipeline.followers.applying import upcoming_passes
from pipeline.followers.applying.applier import LogApplier
from pipeline.followers.applying.passes import PlannedPass
from pipeline.followers.applying.reading import LogReader, PassPart, PassSizes
from pipeline.followers.sharing import stream
from pipeline.followers.sharing.client import SharedLog
from pipeline.followers.sharing.server import SharedReading
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.following import Follower, drain, follower
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

SIZES = PassSizes(events=20, long=50, relayed=10, added=10)
"""So that some hundred events are many."""
TABLE = "create table shared (id int primary key, n int, words text)"
ROWS = "select id, id, repeat('x', id % 30) from generate_series(1, 100) id"
TERMINATE = b"""
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name like 'reads for all%' and datname = current_database()
"""
QUERY = "select * from shared order by id"


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.run(TABLE)
        publish_new_tables(config)
        yield stage


class Followers:
    """Some of them, and how many events were read by whom: `shared`, or the applier's number."""

    def __init__(self, stage: Stage, cluster: Cluster, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage, self._cluster, self._stack = stage, cluster, stack
        self.reading = SharedReading(self._connect)
        stack.callback(self.reading.close)
        self.there = list[Follower]()
        self.appliers = list[LogApplier]()
        self.lines = list[SharedLog]()
        self.read = Counter[str]()
        self.breaks = False
        """Whether what is read for all loses its connection behind the first part of a pass."""
        parts = LogReader.parts

        def count(reader: LogReader, planned: PlannedPass) -> Any:
            self.read[threading.current_thread().name] += planned.events
            found = parts(reader, planned)
            return self._broken(found) if self.breaks and threading.current_thread().name == stream.THREAD else found

        monkeypatch.setattr(LogReader, "parts", count)

    def _connect(self) -> Connection:
        return connections.connect(self._stage.config.database, "pipeline database", name="reads for all")

    def _broken(self, parts: Iterator[PassPart]) -> Iterator[PassPart]:
        yield next(parts)
        self._stage.log.execute(TERMINATE)
        yield from parts

    def add(self, seq: int, *rows: Any, table: str = TABLE) -> LogApplier:
        there = self._stack.enter_context(follower(self._stage, self._cluster, table, seq=seq))
        self.there.append(there)
        there.run("set session_replication_role = replica")
        for row in rows:
            there.look.execute("insert into shared values (%s, %s, %s)", row)
        self.lines.append(SharedLog(self.reading.open_socket()))
        self.appliers.append(there.applier(["shared"], sizes=SIZES, shared=self.lines[-1]))
        return self.appliers[-1]

    def drain(self) -> None:
        for applier in self.appliers:
            drain(applier)

    def are_equal(self) -> bool:
        return all(there.rows(QUERY) == self._stage.source.execute(QUERY).fetchall() for there in self.there)

    def require_sharing(self, count: int, *, by: int = 1) -> None:
        """Soon no follower reads alone: if the relation history grows, each reads by itself for once."""
        for _ in range(20):
            self.alone()
            change(self._stage, count, by=by)
            self._stage.arrive()
            self.drain()
            assert self.are_equal()
            shared = self.read[stream.THREAD]
            if self.alone() == 0:
                assert shared >= count * by
                return
        raise AssertionError("a follower reads alone every time")

    def alone(self) -> int:
        """Events that appliers have read by themselves since this was asked last."""
        found = sum(count for name, count in self.read.items() if name != stream.THREAD)
        self.read.clear()
        return found


@pytest.fixture
def three(stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followers]:
    """At the head, where each has asked once."""
    monkeypatch.setattr(upcoming_passes, "ALONE_SECONDS", 0)
    stage.run(
        "truncate shared", "insert into shared select id, id, repeat('x', id % 30) from generate_series(1, 100) id"
    )
    seq = stage.arrive()
    rows = stage.source.execute(QUERY).fetchall()
    with ExitStack() as stack:
        made = Followers(stage, cluster, stack, monkeypatch)
        for _ in range(3):
            made.add(seq, *rows)
        made.drain()
        change(stage, 1)
        stage.arrive()  # with a longer relation history, from which each reads by itself
        made.drain()
        yield made


def change(stage: Stage, count: int, *, by: int = 1) -> None:
    """This many transactions, each of this many rows."""
    for number in range(count):
        stage.run(f"update shared set n = n + 1, words = words || 'y' where id between {number + 1} and {number + by}")


def test_the_log_is_read_once_for_all(stage: Stage, three: Followers):
    for count, by in ((1, 1), (3, 10), (1, 100), (6, 40)):
        three.require_sharing(count, by=by)


def test_one_that_is_alone_has_nobody_read_for_it(stage: Stage, three: Followers):
    for line in three.lines[1:]:
        line.close()
    # Who serves them sees that a moment later.
    eventually(lambda: [each.readers for each in three.reading._streams.values()] == [1])
    three.alone()
    change(stage, 2)
    stage.arrive()
    drain(three.appliers[0])
    assert three.alone() > 0


def test_one_that_is_late_reads_alone_until_it_is_where_the_others_are(stage: Stage, three: Followers):
    slow = three.appliers.pop()
    for number in range(10):
        change(stage, 1, by=3)
        stage.run(f"delete from shared where id = {number}")
        stage.arrive()
        three.drain()
    three.alone()
    three.appliers.append(slow)
    drain(slow)
    assert three.alone() > 0
    assert three.are_equal()
    three.require_sharing(1)


def test_what_is_no_longer_kept_is_read_alone(stage: Stage, three: Followers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "KEPT_BYTES", 1)
    slow = three.appliers.pop()
    for _ in range(4):
        change(stage, 1, by=100)
        stage.arrive()
        three.drain()
    three.appliers.append(slow)
    three.alone()
    three.drain()
    assert three.alone() >= 300
    assert three.are_equal()


def test_one_that_comes_between_two_places_joins_at_the_next(stage: Stage, three: Followers):
    """It was brought there one transaction at a time."""
    between = three.appliers.pop()
    first = stage.arrive()
    change(stage, 4, by=3)
    stage.arrive()
    three.drain()
    while between.position.seq <= first:
        between.apply(first + 1)
    three.appliers.append(between)
    three.alone()
    three.drain()
    assert three.alone() >= 9
    assert three.are_equal()
    three.require_sharing(2, by=3)


def test_each_of_them_stops_before_what_cannot_be_applied(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upcoming_passes, "ALONE_SECONDS", 0)
    seq = stage.arrive()
    with ExitStack() as stack:
        made = Followers(stage, cluster, stack, monkeypatch)
        stage.run("truncate shared", "insert into shared values (1, 1, 'a')")
        stage.arrive()
        for _ in range(2):
            made.add(seq)
        made.drain()
        stage.run("insert into shared values (2, 2, 'b')", "alter table shared alter column n type bigint")
        stage.run("insert into shared values (3, 3, 'c')")
        stage.arrive()
        try:
            for applier in made.appliers:
                for _ in range(2):
                    with pytest.raises(NotFollowableError):
                        drain(applier)
                assert applier.position.seq > seq
            assert all(len(there.rows(QUERY)) == 2 for there in made.there)
        finally:
            stage.run("drop table shared", TABLE)
            publish_new_tables(stage.config)
            stage.arrive()


def test_where_nobody_reads_any_more_each_reads_alone(stage: Stage, three: Followers):
    three.reading.close()
    change(stage, 3, by=50)
    stage.arrive()
    three.drain()
    assert three.are_equal()


def test_where_the_line_breaks_each_reads_alone(stage: Stage, three: Followers):
    for line in three.lines:
        line.close()
    change(stage, 3, by=50)
    stage.arrive()
    three.drain()
    assert three.are_equal()


def test_a_reader_that_loses_its_connection_is_followed_by_another(stage: Stage, three: Followers):
    assert stage.log.execute(TERMINATE).fetchall()
    for _ in range(3):
        change(stage, 3, by=50)
        stage.arrive()
        three.drain()
        assert three.are_equal()
    assert three.read[stream.THREAD] > 0


def test_a_pass_that_breaks_off_is_read_again(stage: Stage, three: Followers):
    three.breaks = True
    change(stage, 2, by=50)
    stage.arrive()
    three.drain()
    assert three.are_equal()
    assert three.read[stream.THREAD] > 0
    assert three.alone() > 0


def test_they_are_equal_whatever_their_paces_are(stage: Stage, three: Followers, monkeypatch: pytest.MonkeyPatch):
    """Small and large transactions, kept in less room than they need, and appliers that rest now and then."""
    monkeypatch.setattr(stream, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(stream, "AHEAD_BYTES", 10_000)
    stop = threading.Event()
    failed = list[BaseException]()

    def work(applier: LogApplier, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not stop.is_set():
                if applier.apply() is None or chance.random() < 0.2:
                    time.sleep(chance.random() * 0.05)
            drain(applier)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(applier, seed)) for seed, applier in enumerate(three.appliers)]
    for thread in threads:
        thread.start()
    chance = random.Random(1)
    try:
        for number in range(12):
            change(stage, chance.choice((1, 4)), by=chance.choice((1, 5, 100)))
            first = 1000 * (number + 1)
            stage.run(f"insert into shared select id, 0, 'new' from generate_series({first}, {first + 200}) id")
            stage.arrive()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert three.are_equal()
    assert three.read[stream.THREAD] > 0
