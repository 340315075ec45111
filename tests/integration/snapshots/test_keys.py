"""A table whose key becomes another, or whose rows were another table's: the log has it whole only once it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipeline.comparing import compared_table
from pipeline.comparing.comparison import ContentComparison
from pipeline.config.settings import Config
from pipeline.postgres import connections, session_settings
from pipeline.snapshots import start
from pipeline.snapshots.former_keys import FormerKeys
from tests.fixtures.background import BackgroundThread
from tests.fixtures.comparing_content import differing
from tests.fixtures.shuffling import shuffler, stored
from tests.fixtures.snapshotting import SharedSnapshotting, Snapshotting
from tests.fixtures.waiting import eventually


class Mover(BackgroundThread):
    """The shuffler, while a comparison waits for the log."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config

    def work(self) -> None:
        with connections.connect(self._config.database, "pipeline database") as log:
            moves = shuffler(log)
            while not self.stopped.is_set():
                if moves.step() < 0:
                    self.stopped.wait(0.03)


@contextmanager
def comparison(reading: Snapshotting, table: str) -> Iterator[ContentComparison]:
    with (
        connections.connect(reading.config.source, "source", settings=session_settings.SNAPSHOT) as source,
        connections.connect(reading.config.database, "pipeline database") as log,
        Mover(reading.config),
    ):
        source.execute("set search_path = ''")
        found = stored(log)
        row = reading.source.execute("select %s::regclass::oid::bigint", [table]).fetchone()
        assert row is not None
        yield ContentComparison(source, log, found, compared_table.read(source, log, found, row[0]))


def require_equal(reading: Snapshotting, table: str, rows: int) -> None:
    """`verify --content` finds no difference."""
    with comparison(reading, table) as made:
        assert differing(made) == (rows, [])


def make(reading: Snapshotting, *statements: str) -> None:
    """At the source; then what publishes and what reads look once, in turn."""
    for statement in statements:
        reading.source.execute(statement.encode())
    reading.publish()
    reading.wait_for_stream()
    reading.look()


PAIR = "create table t (id int primary key, n numeric not null, note text)"
ROWS = "insert into t select i, i / 4.0, 'x' from generate_series(1, 8) i"


def test_a_table_with_another_key_is_read_again(shared: SharedSnapshotting):
    with shared() as reading:
        make(reading, PAIR)
        assert reading.state("t") == "complete"
        make(reading, ROWS, "alter table t drop constraint t_pkey, add primary key (n)")
        assert reading.state("t") in ("waiting", "reading")
        reading.finish("t")
        reading.source.execute("update t set note = 'y' where id < 3")
        reading.source.execute("delete from t where id = 8")
        reading.wait_for_stream()
        assert sum(action == "read" for action, _ in reading.events("t")) == 8
        require_equal(reading, "t", 7)


@pytest.mark.parametrize("read", [True, False])
def test_a_table_that_loses_its_key_during_the_read_is_named(shared: SharedSnapshotting, read: bool):
    """`read`: all its rows are read by then."""
    with shared(PAIR, ROWS, "create table u (id int primary key)", "insert into u values (1)") as reading:
        reading.begin("t")
        while read and reading.read() is not None:
            reading.move()
        reading.source.execute("alter table t drop constraint t_pkey")

        def named() -> None:
            reading.coordinator._tables_at = float("inf")  # before the look that finds the new key
            reading.coordinator.step()
            reading.read()
            reading.move()
            state, reason, *_ = reading.row("t") or ("", "")
            assert (state, reading.state("u")) == ("reading", "complete")
            assert re.match(
                r"(public\.)?t has lost its key: add one, or end this with `pipeline backfill can", reason or ""
            )

        reading.begin("u")
        eventually(named)
        reading.source.execute("alter table t add primary key (id)")
        reading.finish("t")
        require_equal(reading, "t", 8)


@pytest.mark.parametrize(
    "after", [pytest.param("update t set note = 'y' where id = 3", marks=pytest.mark.long), "select 1"]
)
def test_a_table_that_had_another_identity_for_a_while_is_read_again(shared: SharedSnapshotting, after: str):
    """Between two looks: what was deleted then is in the log under that identity, also where nothing comes after it."""
    with shared() as reading:
        make(reading, PAIR, "create unique index other on t (n)")
        make(reading, ROWS)
        assert reading.state("t") == "complete"
        make(
            reading,
            "alter table t replica identity using index other",
            "delete from t where id < 3",
            "alter table t replica identity default",
            after,
        )
        assert reading.state("t") in ("waiting", "reading")
        reading.finish("t")
        require_equal(reading, "t", 6)
        reading.restart()
        reading.look()
        assert reading.state("t") == "complete"


@pytest.mark.parametrize("behind", [False, True])
def test_a_table_with_an_earlier_identity_is_read(
    shared: SharedSnapshotting, behind: bool, monkeypatch: pytest.MonkeyPatch
):
    """`behind`: the stream gets to that identity only after the look."""
    with shared() as reading:
        reading.source.execute(PAIR.encode())
        reading.publish()
        for statement in (
            "create unique index other on t (n)",
            ROWS,
            "alter table t replica identity using index other",
            "delete from t where id < 3",
            "alter table t replica identity default",
        ):
            reading.source.execute(statement.encode())
        reading.wait_for_stream()
        if behind:
            with monkeypatch.context() as patched:
                patched.setattr(FormerKeys, "read_new_versions", lambda _: None)
                reading.look()
            assert reading.state("t") == "complete"
        reading.look()
        reading.finish("t")
        require_equal(reading, "t", 6)


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_a_table_of_which_only_inserts_were_captured_before_is_read(shared: SharedSnapshotting, snapshot: str):
    """It had its key before the first insert: no version of it, as the stream has them, is without one.

    What was updated and deleted meanwhile is not in the log; nor does a truncate from then make it whole.
    """
    with shared(snapshot=snapshot) as reading:
        reading.source.execute(PAIR.replace(" primary key", " not null").encode())
        reading.publish()
        for statement in (
            "alter table t add primary key (id)",
            *((ROWS, "truncate t") if snapshot == "never" else ()),
            ROWS,
            "delete from t where id = 1",
            "update t set id = 20 where id = 2",
        ):
            reading.source.execute(statement.encode())
        reading.publish()
        reading.look()
        reading.wait_for_stream()
        reading.look()
        if snapshot == "never":
            assert reading.state("t") == "not read"
            return
        reading.finish("t")
        require_equal(reading, "t", 7)


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_a_table_with_all_columns_as_identity_gets_its_key(shared: SharedSnapshotting, snapshot: str):
    with shared(snapshot=snapshot) as reading:
        make(reading, PAIR.replace(" primary key", " not null"), "alter table t replica identity full")
        assert reading.state("t") == "complete"
        make(reading, ROWS, "alter table t add primary key (id)")
        if snapshot == "never":
            assert reading.state("t") == "not read"
            return
        reading.finish("t")
        reading.source.execute("delete from t where id = 8")
        reading.wait_for_stream()
        require_equal(reading, "t", 7)


def test_a_key_that_goes_and_comes_between_two_looks(shared: SharedSnapshotting):
    """What was deleted in between was not captured."""
    with shared() as reading:
        make(reading, PAIR)
        make(reading, ROWS)
        assert reading.state("t") == "complete"
        for statements in (
            ["alter table t drop constraint t_pkey"],
            [
                "delete from t where id = 1",
                "update t set note = 'y' where id = 2",
                "alter table t add primary key (id)",
            ],
        ):
            for statement in statements:
                reading.source.execute(statement.encode())
            reading.publish()
        reading.look()
        assert reading.state("t") in ("waiting", "reading")
        reading.finish("t")
        require_equal(reading, "t", 7)


def test_another_name_of_the_key_is_no_other_key(shared: SharedSnapshotting):
    with shared() as reading:
        make(reading, PAIR)
        make(reading, ROWS)
        make(
            reading,
            "alter table t rename id to number",
            "alter table t alter number type bigint",
            "alter table t add column more int",
            "alter index t_pkey rename to other",
        )
        assert reading.state("t") == "complete"


def test_a_truncate_from_before_the_key_does_not_make_a_table_whole(shared: SharedSnapshotting):
    """The log lags: it gets the truncate after the table has got its key."""
    with shared(snapshot="never") as reading:
        make(reading, PAIR.replace(" primary key", " not null"))
        reading.move()
        make(reading, ROWS, "truncate t", ROWS, "alter table t add primary key (id)")
        assert reading.state("t") == "not read"
        reading.wait_for_stream()
        reading.look()
        assert reading.state("t") == "not read"
        make(reading, "truncate t", ROWS)
        reading.wait_for_stream()
        reading.look()
        assert reading.state("t") == "complete"
        require_equal(reading, "t", 8)


def test_a_partition_that_becomes_a_table_is_read(shared: SharedSnapshotting):
    """The log has its rows as those of the table that it was a partition of."""
    with shared() as reading:
        make(
            reading,
            "create table t (id int primary key, note text) partition by range (id)",
            "create table t_1 partition of t for values from (0) to (100)",
            "create table t_2 partition of t for values from (100) to (200)",
        )
        make(reading, "insert into t select i, 'x' from generate_series(98, 102) i")
        make(reading, "alter table t detach partition t_1", "insert into t_1 values (1, 'y')")
        assert reading.state("t_1") in ("waiting", "reading")
        reading.finish("t_1")
        reading.wait_for_stream()
        require_equal(reading, "t_1", 3)
        make(reading, "alter table t attach partition t_1 for values from (0) to (100)")
        assert reading.state("t_1") == "not captured"
        make(reading, "insert into t values (2, 'z')", "alter table t detach partition t_1")
        reading.finish("t_1")
        reading.wait_for_stream()
        require_equal(reading, "t_1", 4)


PARTED = "create table t (id int primary key, note text) partition by range (id)"
ATTACH = "alter table t attach partition t_1 for values from (0) to (100)"


def test_a_truncated_partition_does_not_make_its_later_table_complete(shared: SharedSnapshotting):
    """The log lags: it gets the truncate when the table is a separate one."""
    with shared(snapshot="never") as reading:
        make(reading, PARTED, "create table t_1 partition of t for values from (0) to (100)")
        rows = "insert into t select i, 'x' from generate_series(1, 5) i"
        for statement in (rows, "truncate t", rows, "alter table t detach partition t_1"):
            reading.source.execute(statement.encode())
        reading.publish()
        for _ in range(2):
            reading.look()
            assert reading.state("t_1") == "not read"
            reading.wait_for_stream()


def test_a_table_that_was_a_partition_for_a_while_is_read(shared: SharedSnapshotting):
    """Between two looks: the rows of that while are in the log as the other table's."""
    with shared() as reading:
        make(reading, PARTED, "create table t_2 partition of t for values from (100) to (200)")
        reading.source.execute("create table t_1 (id int primary key, note text)")
        reading.publish()
        rows = "insert into t select i, 'x' from generate_series(1, 5) i"
        for statement in (ATTACH, rows, "alter table t detach partition t_1"):
            reading.source.execute(statement.encode())
            reading.wait_for_stream()
        reading.look()
        reading.finish("t_1")
        require_equal(reading, "t_1", 5)
        for statement in (ATTACH, "update t set note = 'y'", "alter table t detach partition t_1"):
            reading.source.execute(statement.encode())
            reading.wait_for_stream()
        reading.look()
        assert reading.state("t_1") in ("waiting", "reading")
        reading.finish("t_1")
        require_equal(reading, "t_1", 5)


def test_what_a_row_was_under_another_key_says_nothing_of_it(shared: SharedSnapshotting):
    """The texts of both keys are the same, and so is the whole row."""
    with shared(snapshot="never") as reading:
        make(reading, PAIR.replace("numeric", "int"))
        make(reading, "insert into t select i, i from generate_series(1, 4) i")
        make(reading, "alter table t drop constraint t_pkey, add primary key (n)")
        assert reading.state("t") == "not read"

        def compared() -> None:
            reading.look()
            reading.read()
            assert reading.state("t") == "complete"

        with (
            connections.connect(reading.config.source, "source", settings=session_settings.SERVER) as source,
            Mover(reading.config),
        ):
            start.start(reading.config, source, reading.log, "t", differences=True)
            eventually(compared)
        assert [action for action, _ in reading.events("t")] == ["insert"] * 4 + ["read"] * 4
        require_equal(reading, "t", 4)


def test_a_table_that_cannot_be_compared_yet_does_not_delay_others(
    shared: SharedSnapshotting, monkeypatch: pytest.MonkeyPatch
):
    """Nor does it end the worker, which others would wait for."""
    with shared() as reading:
        make(reading, PAIR)
        make(reading, ROWS)
        with (
            connections.connect(reading.config.source, "source", settings=session_settings.SERVER) as source,
            monkeypatch.context() as patched,
        ):
            begun = start.start(reading.config, source, reading.log, "t", differences=True)
            patched.setattr("pipeline.comparing.differing.keys", refused)
            eventually(lambda: tried(reading))
        assert list(reading.worker.held) == [begun.id]
        assert "division by zero" in (reading.row("t") or ())[1]
        reading.worker.held.clear()
        with Mover(reading.config):
            reading.read()
        reading.finish("t")


def tried(reading: Snapshotting) -> bool:
    reading.look()
    return reading.read() == 0


def refused(*of: Any) -> Iterator[list[list[str]]]:
    of[1].execute("select 1 / 0")
    yield []
