"""Ranges are read while everything else happens at the worst moment: the log must fold to the table all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pipeline.log.staging.range_writer import RangeWriter
from pipeline.log.staging.ranges import ClaimedRange
from pipeline.snapshots import plan
from pipeline.snapshots.shapes import PlannedTableChangedError
from tests.fixtures.postgres import Cluster
from tests.fixtures.reading_tables import ReadingTables
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually

TABLES = ("seen", "unseen", "rewritten", "moved", "died", "unmarked", "filled", "waited", "beside", "gone")
BUSY = ("busy_initial", "busy_differences", "busy_key", "busy_again", "busy_value", "busy_gone")
ROWS = 12
"""Four of them fill a block, and each block is a range here."""
LONG = "x" * 3_000
OLDER_SNAPSHOTS = """
    select count(*) from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid()
"""
"""Sessions because of which a vacuum may keep rows that were deleted just now."""


class Died(Exception):
    """The reader is killed."""


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        for table in TABLES:
            stage.run(
                f"create table {table} (id int primary key, n int, pad text, big text)",
                f"alter table {table} alter pad set storage plain, alter big set storage external",
                f"insert into {table} select g, 0, repeat('p', 1900), '{LONG}' from generate_series(1, {ROWS}) g",
            )
        for table in BUSY:
            stage.run(
                f"create table {table} (id int primary key, n int, big text, doc json)",
                f"alter table {table} alter big set storage external, alter doc set storage external",
                f"""insert into {table} select g, 0, '{LONG}', '{{"b": 1.50, "a": "{LONG}"}}'
                    from generate_series(1, 3) g""",
            )
        stage.arrive()  # the stream has its segment: to make one waits for a range that makes one
        yield stage


@pytest.fixture
def reading(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadingTables]:
    monkeypatch.setattr(plan, "ROWS", 1)
    with ReadingTables(stage) as reading:
        yield reading


def meanwhile(act: Callable[[], object]) -> Callable[[Any, Any, ClaimedRange], RangeWriter]:
    """A writer that does something once: after the rows of a range were read, and before its marker is written."""

    class Writer(RangeWriter):
        def add(self, *of: Any) -> None:
            super().add(*of)
            act()

    return Writer


def test_a_row_that_has_changed_since_it_was_read_is_left_out(stage: Stage, reading: ReadingTables):
    number = reading.begin("seen")
    reading.read(
        meanwhile(
            lambda: stage.run(
                "update seen set n = 1 where id = 1",
                "delete from seen where id = 2",
                "update seen set id = 33 where id = 3",
            )
        )
    )
    reading.finish(number)
    reading.expect_equal("seen")
    assert reading.backfill(number).rows_added == ROWS - 3 + 2, "two of them by their key, for their large value"


def test_rows_already_in_the_log_are_found_with_an_older_snapshot(stage: Stage, reading: ReadingTables):
    def change() -> None:
        stage.run("update unseen set n = 1 where id = 1", "delete from unseen where id = 2")
        stage.arrive()

    number = reading.begin("unseen")
    reading.read(meanwhile(change))
    reading.finish(number)
    reading.expect_equal("unseen")


def test_a_transaction_that_is_open_when_the_table_joins_is_waited_for(stage: Stage, reading: ReadingTables):
    with psycopg.connect(stage.config.source) as writer:
        writer.execute("update waited set n = 1 where id = 1")
        number = reading.start("waited")
        for _ in range(3):
            assert reading.state(number) == "waiting"
        assert "waits for transactions that had begun before it" in (reading.backfill(number).reason or "")
    reading.coordinator.step()
    reading.finish(number)
    reading.expect_equal("waited")


def test_a_table_that_was_written_anew_is_read_from_its_beginning(stage: Stage, reading: ReadingTables):
    number = reading.begin("rewritten")
    first = reading.read()
    assert first is not None and first.until_block == 1
    stage.run("delete from rewritten where id <= 4", "vacuum full rewritten")
    with pytest.raises(PlannedTableChangedError, match="was rewritten"):
        reading.read()
    assert reading.state(number) == "reading"
    reading.finish(number)
    reading.expect_equal("rewritten")


def test_a_row_that_moves_to_where_reading_has_been_is_read_by_its_key(stage: Stage, reading: ReadingTables):
    stage.run("delete from moved where id <= 4")
    eventually(lambda: stage.source.execute(OLDER_SNAPSHOTS).fetchone() == (0,))
    stage.run("vacuum (truncate off) moved", 'alter table moved rename id to "%(x)s"')
    number = reading.begin("moved")
    reading.read()
    stage.run(f'update moved set n = 1 where "%(x)s" = {ROWS}')
    first = stage.source.execute(f'select ctid::text from moved where "%(x)s" = {ROWS}'.encode()).fetchone()
    assert first == ("(0,1)",)
    reading.finish(number)
    reading.expect_equal("moved", "%(x)s")


def test_a_reader_that_dies_once_its_marker_has_committed_loses_nothing(stage: Stage, reading: ReadingTables):
    class Writer(RangeWriter):
        def __exit__(self, *of: object) -> None:
            self._connection.close()
            super().__exit__(*of)

    number = reading.begin("died")
    reading.read(Writer)
    with ReadingTables(stage) as another:
        another.finish(number)
        another.expect_equal("died")
        assert another.backfill(number).rows_read == ROWS


def test_rows_whose_marker_has_not_committed_are_read_again(stage: Stage, reading: ReadingTables):
    class Writer(RangeWriter):
        def store(self, *of: Any) -> bool:
            assert super().store(*of)
            raise Died

    number = reading.begin("unmarked")
    with pytest.raises(Died):
        reading.read(Writer)
    assert reading.ranges()[0]["state"] == "staged"
    stage.run("update unmarked set n = 1 where id = 1", "delete from unmarked where id = 2")
    stage.arrive()
    reading.coordinator.step()
    assert reading.ranges()[0]["state"] == "planned"
    reading.finish(number)
    reading.expect_equal("unmarked")


def test_a_value_that_was_read_is_filled_in_from_then_on(stage: Stage, reading: ReadingTables):
    number = reading.begin("filled")
    reading.finish(number)
    stage.run("update filled set n = 1 where id = 1")
    stage.arrive()
    reading.expect_equal("filled")


def test_another_table_is_dropped_while_a_range_is_read(stage: Stage, reading: ReadingTables):
    """What Postgres' view of published tables would wait for, and then fail."""
    number = reading.begin("beside")
    with psycopg.connect(stage.config.source) as dropping:
        dropping.execute("drop table gone")
        assert reading.read()
        dropping.commit()
    reading.finish(number)
    reading.expect_equal("beside")


@pytest.mark.parametrize("kind", ["initial", "differences"])
def test_a_row_that_is_updated_without_a_rest_is_known_all_the_same(stage: Stage, reading: ReadingTables, kind: str):
    """There is always a change between what was read and its marker, and each leaves the large values alone."""
    name = f"busy_{kind}"
    busy = meanwhile(lambda: stage.run(f"update {name} set n = n + 1 where id = 1"))
    number = reading.begin(name, kind)
    for _ in range(20):
        while reading.read(busy):
            continue
        stage.arrive()
        if reading.state(number) == "complete":
            break
    assert reading.state(number) == "complete", reading.ranges()
    stage.run(f"update {name} set n = n + 1 where id = 1")
    stage.arrive()
    reading.expect_equal(name)
    wanted = stage.source.execute(f"select doc::text from {name} where id = 1").fetchone()
    newest = "select exact ->> 'doc' as doc from sequin_events where source_table_name = %s and record_pk = '1'"
    assert stage.look(f"{newest} order by seq desc limit 1", name) == [{"doc": wanted[0] if wanted else None}]


def until_keys(reading: ReadingTables, number: int) -> None:
    """Wait until rows must be read again by their keys."""
    for _ in range(20):
        planned = [each for each in reading.ranges() if each["state"] == "planned"]
        if planned and planned[0]["from_block"] is None:
            return
        if planned:
            reading.read()
        else:
            reading.stage.arrive()
            reading.state(number)
    raise AssertionError(f"no row is read again: {reading.ranges()}")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("busy_key", ["update {0} set id = 11 where id = 1"]),
        ("busy_again", ["delete from {0} where id = 1", "insert into {0} values (1, 5, 'short', '[2]')"]),
        ("busy_value", ["update {0} set big = repeat('y', 3000) where id = 1", "update {0} set n = 7 where id = 1"]),
        ("busy_gone", ["delete from {0} where id = 1"]),
    ],
)
def test_values_are_taken_only_where_all_changes_left_them_alone(
    stage: Stage, reading: ReadingTables, name: str, changes: list[str]
):
    """`read` again by its key, a row has changed again, and not only in other values."""
    number = reading.begin(name)
    reading.read(meanwhile(lambda: stage.run(f"update {name} set n = n + 1 where id in (1, 2)")))
    until_keys(reading, number)
    reading.read(
        meanwhile(
            lambda: stage.run(
                f"update {name} set n = n + 1 where id in (1, 2)", *[each.format(name) for each in changes]
            )
        )
    )
    reading.finish(number)
    reading.expect_equal(name)
