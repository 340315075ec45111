"""What the log missed is found by comparing it with the table: appended is what differs, once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pipeline.capture.schema_history import rewrites
from pipeline.log.staging.range_writer import RangeWriter
from pipeline.log.staging.ranges import ClaimedRange
from pipeline.operate.verify import verify
from pipeline.snapshots import comparing
from tests.fixtures.postgres import Cluster
from tests.fixtures.reading_tables import ReadingTables
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

TABLES = ("plain", "raced", "toasted", "emptied", "stopped", "killed", "rewritten", "moved", "untold", "filled", "odd")
LONG, OTHER = "x" * 3_000, "y" * 3_000
PARTITIONED = (
    "create table parts (id int primary key, n int) partition by range (id)",
    "create table parts_1 partition of parts for values from (0) to (10)",
    "create table parts_2 partition of parts for values from (10) to (100)",
)


class Died(Exception):
    """The reader is killed."""


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        for table in TABLES:
            stage.run(
                f"create table {table} (id int primary key, n int, big text)",
                f"alter table {table} alter big set storage external",
            )
        stage.run(*PARTITIONED)
        stage.arrive()
        with ReadingTables(stage) as reading:
            reading.coordinator.step()  # they are empty, so the log says all of them
        yield stage


@pytest.fixture
def reading(stage: Stage) -> Iterator[ReadingTables]:
    with ReadingTables(stage) as reading:
        yield reading


def have(stage: Stage, table: str, keys: int = 4) -> None:
    """The log has these rows."""
    stage.run(f"insert into {table} select g, 0, '{LONG}' from generate_series(1, {keys}) g")
    stage.arrive()


def lose(stage: Stage, *statements: str) -> None:
    """Changes that the log does not get: their events are taken from it."""
    before = stage.arrive()
    stage.run(*statements)
    stage.arrive()
    stage.log.execute("delete from sequin_events where seq > %s and action <> 'message'", [before])


def appended(stage: Stage, number: int, columns: str = "action, record_pk") -> list[tuple[Any, ...]]:
    """The events of a backfill."""
    query = f"select {columns} from sequin_events where metadata -> 'recovered' ->> 'backfill' = %s order by seq"
    return stage.log.execute(query.encode(), [str(number)]).fetchall()


def reads(stage: Stage, table: str) -> list[str]:
    query = "select record_pk from sequin_events where source_table_name = %s and action = 'read' order by seq"
    return [pk for (pk,) in stage.log.execute(query, [table]).fetchall()]


def test_inserts_updates_deletes_and_changed_keys(stage: Stage, reading: ReadingTables):
    have(stage, "plain", 6)
    lose(
        stage,
        "insert into plain values (9, 1, 'new')",
        "update plain set n = 7 where id = 1",
        "delete from plain where id = 2",
        "update plain set id = 33 where id = 3",
        f"update plain set big = '{OTHER}' where id = 4",
    )
    stage.run("update plain set n = 5 where id = 5")
    number = reading.begin("plain", "differences", (16, 32))
    reading.finish(number)
    reading.expect_equal("plain")
    recovered = {"recovered": {"backfill": number, "after": "0/10", "until": "0/20"}}
    events = {pk: rest for pk, *rest in appended(stage, number, "record_pk, action, changes, record, metadata")}
    assert events["1"] == ["update", {"n": 0}, {"id": 1, "n": 7, "big": LONG}, recovered]
    assert events["2"] == ["delete", None, {"id": 2}, recovered]
    assert sorted(appended(stage, number)) == [
        ("delete", "2"),
        ("delete", "3"),
        ("insert", "33"),
        ("insert", "9"),
        ("update", "1"),
        ("update", "4"),
    ]
    assert [idx for (idx,) in appended(stage, number, "commit_idx")] == [1, 2, 3, 4, 5, 6]
    found = reading.backfill(number)
    assert (found.rows_added, found.reason) == (6, None)
    again = reading.begin("plain", "differences")
    reading.finish(again)
    assert appended(stage, again) == []
    assert reads(stage, "plain") == []
    broken = [each for each in verify.run(stage.config, 0, 1_000, lambda *_: None).checks if each.broken]
    assert [each.name for each in broken] == ["events"], "which were taken away"


def meanwhile(act: Callable[[], object]) -> Callable[[Any, Any, ClaimedRange], RangeWriter]:
    """A writer that does something once: after the rows of a range were read, and before its marker is written."""

    class Writer(RangeWriter):
        def store(self, *of: Any) -> bool:
            act()
            return super().store(*of)

    return Writer


def compare(reading: ReadingTables) -> None:
    taken = reading.read()
    assert taken is not None and taken.compares


def test_what_changes_between_snapshot_and_marker_is_left_out(stage: Stage, reading: ReadingTables):
    have(stage, "raced", 8)
    lose(
        stage,
        "update raced set n = 1 where id <= 3",
        "delete from raced where id in (4, 5)",
        "insert into raced values (9, 1, 'new'), (10, 1, 'new')",
    )
    number = reading.begin("raced", "differences")
    compare(reading)
    stage.run("update raced set n = 2 where id = 1")
    reading.read(
        meanwhile(
            lambda: stage.run(
                "delete from raced where id = 2",
                "insert into raced values (4, 2, 'again')",
                "update raced set id = 99 where id = 9",
                "update raced set n = 2 where id = 8",
            )
        )
    )
    reading.finish(number)
    reading.expect_equal("raced")
    assert sorted(appended(stage, number)) == [("delete", "5"), ("insert", "10"), ("update", "3")]


def test_a_value_that_the_newest_event_leaves_out_is_read(stage: Stage, reading: ReadingTables):
    have(stage, "toasted", 2)
    lose(stage, f"update toasted set big = '{OTHER}', n = 1 where id = 1")
    stage.log.execute("delete from sequin_events where source_table_name = 'toasted' and record_pk = '2'")
    stage.run("update toasted set n = 2 where id = 2")
    stage.arrive()
    number = reading.begin("toasted", "differences")
    reading.finish(number)
    reading.expect_equal("toasted")
    assert appended(stage, number, "action, record_pk, changes") == [
        ("update", "1", {"n": 0, "big": LONG}),
        ("update", "2", None),
    ]


def test_rows_that_were_there_before_a_truncate_are_inserts(stage: Stage, reading: ReadingTables):
    have(stage, "emptied")
    stage.run("truncate emptied")
    lose(stage, "insert into emptied values (1, 1, 'new')")
    number = reading.begin("emptied", "differences")
    reading.finish(number)
    reading.expect_equal("emptied")
    assert appended(stage, number) == [("insert", "1")]


def test_a_key_that_was_left_before_is_free(stage: Stage, reading: ReadingTables):
    have(stage, "moved")
    stage.run("update moved set id = 11 where id = 1", "update moved set id = 12 where id = 2")
    lose(stage, f"insert into moved values (1, 0, '{LONG}')")
    number = reading.begin("moved", "differences")
    reading.finish(number)
    reading.expect_equal("moved")
    assert appended(stage, number) == [("insert", "1")]


def test_a_parked_event_says_nothing_of_its_row(stage: Stage, reading: ReadingTables):
    have(stage, "odd")
    stage.run("update odd set n = 1 where id in (1, 2)")
    stage.arrive()
    stage.log.execute(
        """update sequin_events set metadata = '{"parked": 1}', record = '{}' where source_table_name = 'odd'"""
        " and action = 'update'"
    )
    lose(stage, "delete from odd where id = 2")
    number = reading.begin("odd", "differences")
    reading.finish(number)
    reading.expect_equal("odd")
    assert reads(stage, "odd") == ["1"]
    assert appended(stage, number) == [("delete", "2")]


def test_where_the_log_cannot_say_rows_are_read(stage: Stage, reading: ReadingTables):
    have(stage, "untold", 2)
    lose(stage, "insert into untold values (9, 1, 'new')", "delete from untold where id = 2")
    stage.log.execute("update pipeline.snapshot_tables set told_seqs = null where table_name = 'untold'")
    number = reading.begin("untold", "differences")
    reading.finish(number)
    reading.expect_equal("untold")
    assert reads(stage, "untold") == ["9"]
    assert appended(stage, number) == [("delete", "2")]
    assert reading.backfill(number).reason == comparing.UNKNOWN


def test_a_key_is_missing_only_if_no_partition_has_it(stage: Stage, reading: ReadingTables):
    stage.run(
        "insert into parts select g, 0 from generate_series(1, 40) g",
        "truncate parts",
        "insert into parts select g, 0 from generate_series(1, 20) g",
    )
    lose(
        stage,
        "update parts set id = 50 where id = 1",
        "delete from parts where id = 2",
        "update parts set n = 1 where id = 15",
        "insert into parts values (30, 0)",
    )
    number = reading.begin("parts", "differences")
    reading.finish(number)
    reading.expect_equal("parts")
    assert sorted(appended(stage, number)) == [
        ("delete", "1"),
        ("delete", "2"),
        ("insert", "30"),
        ("insert", "50"),
        ("update", "15"),
    ]


def test_a_comparison_that_dies_is_made_again(stage: Stage, reading: ReadingTables, monkeypatch: pytest.MonkeyPatch):
    have(stage, "stopped")
    lose(stage, "delete from stopped where id = 1", "update stopped set n = 1 where id = 2")
    number = reading.begin("stopped", "differences")
    with monkeypatch.context() as patched, ReadingTables(stage) as died:
        patched.setattr("pipeline.log.staging.ranges.end_comparison", lambda *_: 1 / 0)
        patched.setattr("pipeline.comparing.differing.KEYS", 1)
        with pytest.raises(ZeroDivisionError):
            died.read()
        assert len(reading.ranges()) > 1
    eventually(lambda: reading.coordinator.step() and reading.ranges()[0]["state"] == "planned")
    reading.finish(number)
    reading.expect_equal("stopped")
    assert sorted(appended(stage, number)) == [("delete", "1"), ("update", "2")]


def test_a_reader_that_dies_adds_nothing_twice(stage: Stage, reading: ReadingTables):
    class Writer(RangeWriter):
        def store(self, *of: Any) -> bool:
            assert super().store(*of)
            raise Died

    have(stage, "killed")
    lose(stage, "delete from killed where id = 1", "insert into killed values (7, 7, 'new')")
    number = reading.begin("killed", "differences")
    compare(reading)
    with pytest.raises(Died):
        reading.read(Writer)
    stage.run("update killed set n = 1 where id = 7")
    reading.finish(number)
    reading.expect_equal("killed")
    assert appended(stage, number) == [("delete", "1")]


def test_a_table_that_ddl_wrote_anew_is_settled(stage: Stage, reading: ReadingTables):
    have(stage, "rewritten")
    stage.run(
        "update rewritten set n = 3 where id = 3",
        "alter table rewritten alter n type int using n * 2 + 1",
        "update rewritten set n = 9 where id = 4",
    )
    stage.arrive()
    assert {each.table for each in rewrites.read_unsettled(reading.log)} == {"public.rewritten"}
    stage.run("alter table rewritten rename to written", "update written set n = 9 where id = 4")
    stage.arrive()
    assert {each.table for each in rewrites.read_unsettled(reading.log)} == {"public.written"}
    number = reading.begin("written", "differences")
    reading.finish(number)
    reading.expect_equal("written")
    # The watch of the source may find the same again: afterwards, or before that, behind the last update of row 4.
    left = (
        "select kind from pipeline.rewrites where table_name = 'rewritten' and settled_at is null and kind <> 'values'"
    )
    assert stage.look(left) == []
    updated = [pk for action, pk in appended(stage, number) if action == "update"]
    assert updated in (["1", "2", "3"], ["1", "2", "3", "4"])


def test_a_transaction_that_is_open_is_waited_for(stage: Stage, reading: ReadingTables):
    have(stage, "filled")
    with psycopg.connect(stage.config.source) as writer:
        writer.execute("update filled set n = 1 where id = 1")
        number = reading.start("filled", "differences")
        assert [reading.state(number) for _ in range(2)] == ["waiting", "waiting"]
    reading.finish(number)
    reading.expect_equal("filled")
    assert appended(stage, number) == []
