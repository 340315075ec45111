"""Which tables are read: those that join from now on and have rows, as the settings say."""

from __future__ import annotations

import pytest

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.snapshots.known_tables import EMPTY
from tests.fixtures.snapshotting import SharedSnapshotting, Snapshotting, snapshotting

TABLE, ROWS = "create table t (id int primary key)", "insert into t select generate_series(1, 5)"


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)


def make(reading: Snapshotting, *statements: str) -> None:
    """Run it at the source, and capture from then on."""
    for statement in statements:
        reading.source.execute(statement.encode())
    reading.publish()
    reading.wait_for_stream()
    reading.look()


def state(reading: Snapshotting, table: str) -> tuple[str, str]:
    row = reading.row(table)
    assert row is not None
    return row[0], str(row[1])


def test_tables_of_a_version_that_could_not_read_them_are_left_as_they_are(config: Config):
    with snapshotting(config, TABLE, ROWS) as reading:
        # As the migration leaves a source that it finds.
        reading.log.execute("update pipeline.sources set reads_tables = false, reads_from = now()")
        make(reading, "create table later (id int primary key)", "insert into later values (1)")
        assert state(reading, "t")[0] == "not read"
        assert "captured before rows that tables already had were read" in state(reading, "t")[1]
        reading.finish("later")
        assert reading.events("t") == []
        assert reading.events("later") == [("read", "1")]


def test_settings_choose_the_tables(shared: SharedSnapshotting):
    with shared(
        TABLE,
        ROWS,
        "create table ux (id int primary key)",
        "insert into ux values (1)",
        snapshot_tables=("public.u*",),
    ) as reading:
        reading.finish("ux")
        assert state(reading, "t")[0] == "not read"
        assert "PIPELINE_SNAPSHOT_TABLES did not match it" in state(reading, "t")[1]


def test_a_table_that_was_empty_is_whole_at_once(shared: SharedSnapshotting):
    with shared(TABLE) as reading:
        reading.source.execute("insert into t values (1)")
        make(reading, "create table u (id int primary key)")
        rows = [reading.row(name) for name in ("t", "u")]
        assert [row and row[:6] for row in rows] == [("complete", None, 0, 0, 0, None)] * 2
        assert None not in [row and row[6] for row in rows]
        assert reading.events("t") == [("insert", "1")]


def test_a_table_that_was_empty_is_whole_once_the_log_gets_there(config: Config):
    """Before that, the log stands where the table may have had rows that it lacks."""
    staged = config.model_copy(update={"small_batches": "staged"})  # so that the log gets there when the test wants it
    with snapshotting(staged, TABLE) as reading:
        make(reading)
        reading.source.execute("insert into t values (1)")
        for statement in ("create table u (id int primary key)", "insert into u values (1)", "delete from u"):
            reading.source.execute(statement.encode())
        reading.publish()
        reading.look()
        assert state(reading, "u") == ("not read", EMPTY)
        reading.source.execute("insert into t values (2)")
        reading.wait_for_stream()
        reading.look()
        row = reading.row("u")
        assert row is not None and row[:2] == ("complete", None)
        assert row[6] >= reading.events("t", "seq")[0][0], "not from where the log stood when it joined"


def test_a_partitioned_table_is_empty_only_when_its_partitions_are(shared: SharedSnapshotting):
    made = (
        "create table p (id int primary key) partition by range (id)",
        "create table p1 partition of p for values from (0) to (10)",
        "insert into p values (1)",
    )
    with shared(*made) as reading:
        reading.finish("p")
        assert reading.events("p") == [("read", "1")]


def test_a_table_that_gets_its_key_is_read_again(shared: SharedSnapshotting):
    with shared("create table t (id int)", ROWS) as reading:
        reading.finish("t")
        make(reading, "update t set id = id + 10", "alter table t add primary key (id)")
        reading.finish("t")
        reading.wait_for_stream()
        keyed = [pk for action, pk in reading.events("t") if pk]
        assert sorted(keyed) == ["11", "12", "13", "14", "15"]


def test_a_table_that_gets_its_key_during_the_read_is_read_again(shared: SharedSnapshotting):
    """Updates between its range and its key are in neither the stream nor what was read."""
    with shared("create table t (id int)", ROWS) as reading:
        reading.begin("t")
        assert reading.read() == 5
        make(reading, "update t set id = id + 10", "alter table t add primary key (id)")
        reading.finish("t")
        reading.wait_for_stream()
        keyed = [pk for action, pk in reading.events("t") if pk]
        assert sorted(keyed) == ["11", "12", "13", "14", "15"]


def test_nothing_is_read_between_the_key_and_the_capture_of_updates(shared: SharedSnapshotting):
    """Nothing would bring an update between the two: the log would have the row under its old key forever."""
    with shared("create table t (id int)", ROWS) as reading:
        reading.source.execute("alter table t add primary key (id)")
        reading.begin("t")
        assert reading.read() == 0
        assert state(reading, "t") == (
            "reading",
            "the table has a key now: the backfill waits until its updates are captured",
        )
        make(reading, "update t set id = id + 10")
        reading.finish("t")
        reading.wait_for_stream()
        assert sorted(reading.folded("t")) == ["11", "12", "13", "14", "15"]


def test_a_partition_with_a_key_does_not_wait_for_one_without(shared: SharedSnapshotting):
    with shared(
        "create table t (id int primary key) partition by range (id)",
        "create table t_1 partition of t for values from (0) to (3)",
        "create table t_2 partition of t for values from (3) to (9)",
        "alter table t_2 replica identity nothing",
        ROWS,
    ) as reading:
        reading.finish("t")
        assert sum(action == "read" for action, _ in reading.events("t")) == 5


def test_a_table_that_was_empty_is_read_when_it_gets_its_key(shared: SharedSnapshotting):
    with shared() as reading:
        make(reading, "create table t (id int)")
        assert reading.state("t") == "complete"
        make(reading, ROWS, "update t set id = id + 10", "alter table t add primary key (id)")
        reading.finish("t")
        assert sorted(pk for _, pk in reading.events("t") if pk) == ["11", "12", "13", "14", "15"]


def test_a_deferrable_key_is_none(shared: SharedSnapshotting):
    """Neither the stream nor the publications take it for one: what is read has to be counted beside what is there."""
    with shared() as reading:
        make(reading, "create table t (id int primary key deferrable)", "insert into t values (1)")
        reading.source.execute("insert into t values (2)")
        reading.finish("t")
        reading.wait_for_stream()
        assert sorted(row["id"] for _, row in reading.events("t", "action, record")) == [1, 2]
        assert {pk for _, pk in reading.events("t")} == {""}


def test_a_table_that_left_and_joins_again_is_read_again(shared: SharedSnapshotting):
    with shared(TABLE, ROWS) as reading:
        reading.finish("t")
        before = reading.config
        reading.config = before.model_copy(update={"tables": ("public.other",)})
        make(reading, "create table other (id int primary key)")
        assert reading.state("t") == "not captured"
        reading.source.execute("insert into t values (6)")
        reading.config = before
        make(reading)
        reading.coordinator = reading.new_coordinator()
        reading.finish("t")
        assert [pk for action, pk in reading.events("t") if action == "read"][-6:] == ["1", "2", "3", "4", "5", "6"]


def test_a_value_of_the_snapshot_is_filled_in_after_a_table_rewrite(shared: SharedSnapshotting):
    """The catalog says less of a table that is younger than what the slot may still send; the lock says the rest."""
    altered = "alter table t alter big set storage external"
    filled = f"insert into t values (1, 0, '{'x' * 3_000}')"
    with shared() as reading:
        with reading.source.transaction():
            for statement in ("create table t (id int primary key, n int, big text)", altered, filled):
                reading.source.execute(statement.encode())
        make(reading)
        reading.finish("t")
        reading.source.execute("vacuum full t")
        reading.source.execute("update t set n = 1")
        reading.wait_for_stream()
        assert reading.folded("t") == reading.table("t")
        assert reading.log.execute("select columns from pipeline.rewrites").fetchall() == []


def test_a_value_of_the_snapshot_is_filled_in_despite_earlier_changes(
    shared: SharedSnapshotting,
):
    """The slot lags in the catalog here: it was made before the table, and no server has said since what runs."""
    with shared() as reading:
        external = "alter table t alter big set storage external"
        filled = f"insert into t values (1, 0, '{'x' * 3_000}')"
        make(reading, "create table t (id int primary key, n int, big text)", external, filled)
        reading.finish("t")
        reading.source.execute("update t set n = 1")
        reading.wait_for_stream()
        assert reading.folded("t") == reading.table("t")


def test_a_value_that_was_rewritten_since_it_was_read_is_only_named(shared: SharedSnapshotting):
    """The version of the table that a range brings does not hide what came after it."""
    with shared() as reading:
        big = "select string_agg(md5(g::text), '') from generate_series(1, 300) g"
        make(reading, "create table t (id int primary key, n int, big text)", f"insert into t values (1, 0, ({big}))")
        reading.finish("t")
        reading.source.execute("alter table t alter big type text using upper(big)")
        reading.source.execute("update t set n = 1")
        reading.wait_for_stream()
        assert reading.folded("t") == {"1": {"id": 1, "n": 1, "?": ["big"]}}
        assert reading.log.execute("select kind, columns from pipeline.rewrites").fetchall() == [("values", ["big"])]
