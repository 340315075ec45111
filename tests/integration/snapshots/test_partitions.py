"""Partitions join and leave captured tables with rows that no event names: the log gets them, or says that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pipeline.capture.source import sources
from pipeline.comparing import compared_table, log_state, source_rows
from pipeline.errors import BackfillError
from pipeline.snapshots import partitions_kept, snapshot_status, worker
from pipeline.snapshots import start as start_backfill
from tests.fixtures.postgres import Cluster
from tests.fixtures.snapshotting import Snapshotting, snapshotting
from tests.fixtures.stage import databases
from tests.fixtures.waiting import eventually

MADE = (
    "create table p (id int primary key, n int) partition by range (id)",
    "create table p1 partition of p for values from (0) to (10)",
    "create table p2 partition of p for values from (10) to (20)",
    "create table p_rest partition of p default",
    "insert into p select g, 0 from generate_series(1, 12) g",
)
P5 = "create table p5 partition of p for values from (60) to (70)"
_TABLES = (
    "select oid::regclass::text from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"
)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Snapshotting]:
    with databases(cluster, cluster) as config, snapshotting(config) as server:
        yield server


@pytest.fixture
def empty(server: Snapshotting) -> Iterator[Snapshotting]:
    """Without tables, and without a log of them afterwards."""
    config = server.config
    yield server
    server.config = config
    server.coordinator = server.new_coordinator()
    for (name,) in server.source.execute(_TABLES).fetchall():
        server.source.execute(f"drop table if exists {name} cascade".encode())
    look(server)
    for table in ("pipeline.partition_changes", "pipeline.partitions", "pipeline.partition_looks", "sequin_events"):
        server.log.execute(f"delete from {table}".encode())


@pytest.fixture
def never(empty: Snapshotting) -> Snapshotting:
    """With PIPELINE_SNAPSHOT=never."""
    empty.config = empty.config.model_copy(update={"snapshot": "never"})
    empty.coordinator = empty.new_coordinator()
    return empty


@pytest.fixture
def reading(empty: Snapshotting) -> Snapshotting:
    at_source(empty, *MADE)
    look(empty)
    empty.finish("p")
    return empty


def at_source(reading: Snapshotting, *statements: str, at_once: bool = False) -> None:
    """In a transaction each, or all in one."""
    if at_once:
        with reading.source.transaction():
            for statement in statements:
                reading.source.execute(statement.encode())
    else:
        for statement in statements:
            reading.source.execute(statement.encode())


def look(reading: Snapshotting) -> None:
    reading.publish()
    reading.wait_for_stream()
    reading.look()


def changes(reading: Snapshotting, columns: str = "what, leaf_name, settled_as") -> list[tuple[Any, ...]]:
    query = f"select {columns} from pipeline.partition_changes order by id"
    return reading.log.execute(query.encode()).fetchall()


def equal(reading: Snapshotting) -> None:
    reading.finish("p")
    reading.wait_for_stream()
    assert reading.folded("p") == reading.table("p")


def test_a_table_that_is_attached_with_rows_is_read_alone(reading: Snapshotting):
    before = len(reading.events("p"))
    made = ("create table q (id int primary key, n int)", "insert into q select g, 1 from generate_series(100, 110) g")
    at_source(reading, *made, "alter table p attach partition q for values from (100) to (200)")
    look(reading)
    state, reason, *_, complete = reading.row("p") or ()
    assert (state, complete) == ("waiting", None) or (state, complete) == ("reading", None)
    assert "partition public.q was attached with rows" in reason
    stored = reading.log.execute("select complete_seq is not null from pipeline.snapshot_tables where table_name = 'p'")
    assert stored.fetchone() == (True,)
    equal(reading)
    assert [action for action, _ in reading.events("p")[before:]] == ["read"] * 11
    assert changes(reading) == [("attached", "public.q", "read")]


def test_rows_that_move_from_the_default_partition_come_back(reading: Snapshotting):
    at_source(reading, "insert into p select g, 7 from generate_series(50, 55) g")
    at_source(
        reading,
        "create table moved (like p including all)",
        "with gone as (delete from p_rest where id between 50 and 59 returning *) insert into moved select * from gone",
        "alter table p attach partition moved for values from (50) to (60)",
        at_once=True,
    )
    look(reading)
    equal(reading)
    assert "50" in reading.folded("p")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_partition_that_is_made_and_filled_before_it_is_captured_joins(reading: Snapshotting, at_once: bool):
    at_source(reading, P5, "insert into p values (60, 1), (61, 1)", at_once=at_once)
    look(reading)
    equal(reading)


def test_a_partition_that_left_and_returned_before_any_look_is_compared(reading: Snapshotting):
    made = P5, P5.replace("5", "6", 1).replace("60", "80").replace("70", "90")
    at_source(reading, *made, "insert into p values (60, 1), (61, 1), (80, 1)")
    reading.publish()
    reading.wait_for_stream()
    at_source(reading, "alter table p detach partition p5", "alter table p detach partition p6")
    at_source(reading, "delete from p5 where id = 60", "delete from p6")
    at_source(reading, "alter table p attach partition p5 for values from (60) to (70)")
    at_source(reading, "alter table p attach partition p6 for values from (80) to (90)")
    look(reading)
    reading.look()
    equal(reading)
    found = [("returned", "public.p5", "compared"), ("returned", "public.p6", "compared")]
    assert sorted(changes(reading)) == found


def test_partitions_that_leave_before_the_first_look_are_not_missed(empty: Snapshotting):
    reading = empty
    at_source(reading, *MADE[:-1], P5)
    reading.publish()
    at_source(reading, "insert into p values (1, 1), (10, 1), (60, 1), (61, 1)")
    reading.wait_for_stream()
    at_source(reading, "alter table p detach partition p5", "delete from p5 where id = 60", "drop table p2")
    at_source(reading, "alter table p attach partition p5 for values from (60) to (70)")
    look(reading)
    compare_when_read(reading)
    found = changes(reading, "what, leaf_name")
    assert sorted(found) == [("dropped", "public.p2"), ("returned", "public.p5")]


def test_an_empty_partition_changes_nothing(reading: Snapshotting):
    complete, events = reading.row("p"), len(reading.events("p"))
    at_source(
        reading,
        "create table p5 partition of p for values from (60) to (70)",
        "create table q (id int primary key, n int)",
        "alter table p attach partition q for values from (100) to (200)",
    )
    look(reading)
    assert reading.row("p") == complete
    at_source(reading, "insert into p values (60, 1), (100, 1)")
    reading.wait_for_stream()
    reading.look()
    equal(reading)
    assert [action for action, _ in reading.events("p")[events:]] == ["insert"] * 2


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("alter table p detach partition p2", "detached"),
        pytest.param("alter table p detach partition p2 concurrently", "detached", marks=pytest.mark.long),
        ("drop table p2", "dropped"),
    ],
)
def test_a_partition_that_leaves_makes_the_table_incomplete(reading: Snapshotting, statement: str, what: str):
    if "concurrently" in statement:
        at_source(reading, "drop table p_rest")
        look(reading)
        reading.log.execute("delete from pipeline.partition_changes")
    at_source(reading, statement)
    look(reading)
    state, reason, *_, complete = reading.row("p") or ()
    assert (state, complete) == ("not read", None)
    assert f"partition public.p2 was {what}" in reason
    assert "pipeline backfill start public.p --differences" in reason
    assert "pipeline backfill settle public.p --keep" in reason
    assert changes(reading) == [(what, "public.p2", None)]
    reading.look()
    assert len(changes(reading)) == 1


def test_a_partition_that_leaves_and_returns_between_two_looks_is_compared(reading: Snapshotting):
    before = len(reading.events("p"))
    at_source(
        reading,
        "alter table p detach partition p2",
        "delete from p2 where id = 10",
        "update p2 set n = 5 where id = 11",
        "insert into p2 values (15, 15)",
        "alter table p attach partition p2 for values from (10) to (20)",
    )
    look(reading)
    assert (reading.row("p") or ("", ""))[1].startswith("partition public.p2 was detached and attached again")
    equal(reading)
    added = reading.events("p")[before:]
    assert sorted(added) == [("delete", "10"), ("insert", "15"), ("update", "11")]
    assert changes(reading) == [("returned", "public.p2", "compared")]


def test_a_partition_that_was_seen_gone_and_returns_is_compared(reading: Snapshotting):
    at_source(reading, "alter table p detach partition p2")
    look(reading)
    at_source(reading, "delete from p2 where id = 10", "alter table p attach partition p2 for values from (10) to (20)")
    look(reading)
    equal(reading)
    assert changes(reading) == [("detached", "public.p2", "compared"), ("returned", "public.p2", "compared")]


def test_a_table_between_that_leaves_and_returns_is_seen_by_its_leaves(empty: Snapshotting):
    made = (
        "create table p (id int primary key, n int) partition by range (id)",
        "create table mid partition of p for values from (0) to (100) partition by range (id)",
        "create table low partition of mid for values from (0) to (50)",
        "create table high partition of mid for values from (50) to (100)",
        "insert into p values (1, 1), (60, 1)",
    )
    reading = empty
    at_source(reading, *made)
    look(reading)
    reading.finish("p")
    at_source(
        reading,
        "alter table p detach partition mid",
        "delete from mid where id = 60",
        "insert into mid values (2, 2)",
        "alter table p attach partition mid for values from (0) to (100)",
    )
    look(reading)
    equal(reading)
    assert [what for what, *_ in changes(reading)] == ["returned", "returned"]


def test_a_partition_that_comes_and_goes_between_two_looks_has_left(reading: Snapshotting):
    at_source(reading, "create table brief partition of p for values from (60) to (70)", "insert into p values (60, 1)")
    reading.wait_for_stream()
    at_source(reading, "drop table brief")
    look(reading)
    reading.look()
    assert changes(reading) == [("dropped", "public.brief", None)]
    assert reading.state("p") == "not read"
    reading.look()
    assert len(changes(reading)) == 1


def test_nothing_is_read_where_the_settings_say_so(never: Snapshotting):
    reading = never
    at_source(reading, *MADE[:-1])
    look(reading)
    assert reading.state("p") == "complete"
    made = ("create table q (id int primary key, n int)", "insert into q values (100, 1)")
    at_source(reading, *made, "alter table p attach partition q for values from (100) to (200)")
    look(reading)
    state, reason, *_ = reading.row("p") or ()
    assert state == "not read"
    assert "public.q was attached with rows; PIPELINE_SNAPSHOT was never when it joined" in reason
    assert reading.events("p") == []


def test_rows_without_a_key_are_not_read(empty: Snapshotting):
    made = (
        "create table p (id int, n int) partition by range (id)",
        "create table p1 partition of p for values from (0) to (10)",
    )
    reading = empty
    at_source(reading, *made)
    look(reading)
    made = ("create table q (id int, n int)", "insert into q values (100, 1)")
    at_source(reading, *made, "alter table p attach partition q for values from (100) to (200)")
    look(reading)
    state, reason, *_ = reading.row("p") or ()
    assert state == "not read"
    assert "the table has no key" in reason
    assert reading.events("p") == []


def test_the_first_look_of_a_table_that_is_new_only_stores(reading: Snapshotting):
    assert changes(reading) == []
    names = reading.log.execute("select leaf_name from pipeline.partitions order by 1").fetchall()
    assert names == [("public.p1",), ("public.p2",), ("public.p_rest",)]
    assert reading.log.execute("select distinct unknown from pipeline.partition_looks").fetchall() == [(False,)]


def test_the_first_look_after_the_upgrade_knows_what_was_captured_before(reading: Snapshotting):
    """As the migration leaves a database of the version before."""
    reading.log.execute("update pipeline.partitions set attached_by = '', bounds = null")
    at_source(
        reading,
        "drop table p2",
        "create table q (id int primary key, n int)",
        "insert into q values (100, 1)",
        "alter table p attach partition q for values from (100) to (200)",
    )
    look(reading)
    assert sorted(change[:2] for change in changes(reading)) == [("attached", "public.q"), ("dropped", "public.p2")]
    known = reading.log.execute("select count(*) from pipeline.partitions where attached_by = ''").fetchone()
    assert known == (0,)


def test_the_first_look_of_an_epoch_only_stores(reading: Snapshotting):
    for table in ("snapshot_tables", "partition_looks"):
        reading.log.execute(f"update pipeline.{table} set epoch = epoch - 1".encode())
    at_source(reading, "drop table p2")
    look(reading)
    assert changes(reading) == []
    assert reading.row("p") is not None and "began without its rows being read" in str(reading.row("p"))
    assert reading.log.execute("select unknown from pipeline.partition_looks").fetchall() == [(False,)]
    names = reading.log.execute("select leaf_name from pipeline.partitions order by 1").fetchall()
    assert names == [("public.p1",), ("public.p_rest",)]


def test_a_partition_that_waits_to_be_detached_has_left(reading: Snapshotting):
    at_source(reading, "drop table p_rest")
    look(reading)
    with psycopg.connect(reading.config.source) as other:
        other.execute("select from p")
        reading.source.execute("set statement_timeout = '500ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            reading.source.execute("alter table p detach partition p2 concurrently")
        reading.source.execute("set statement_timeout = 0")
        reading.look()
        assert changes(reading)[1:] == [("detached", "public.p2", None)]
    at_source(reading, "alter table p detach partition p2 finalize")
    look(reading)
    assert len(changes(reading)) == 2


def test_a_table_of_which_the_version_before_stored_nothing_says_so(reading: Snapshotting):
    reading.log.execute("truncate pipeline.partitions, pipeline.partition_looks")
    at_source(reading, "drop table p2")
    look(reading)
    assert changes(reading) == []
    assert reading.log.execute("select unknown from pipeline.partition_looks").fetchall() == [(True,)]


def test_a_truncate_of_a_partition_makes_the_table_incomplete(reading: Snapshotting):
    at_source(reading, "truncate p2")
    look(reading)
    state, reason, *_, complete = reading.row("p") or ()
    assert (state, complete) == ("not read", None)
    assert "partition public.p2 was truncated (truncate), and the log still has its rows" in reason
    reading.look()
    reading.restart()
    reading.look()
    assert changes(reading) == [("truncated", "public.p2", None)]


def test_a_truncate_of_the_table_makes_nothing_incomplete(reading: Snapshotting):
    at_source(reading, "truncate p")
    look(reading)
    assert (reading.state("p"), changes(reading)) == ("complete", [])
    at_source(reading, "insert into p values (1, 1)", "truncate p1, p2, p_rest")
    at_source(reading, P5)
    look(reading)
    assert (reading.state("p"), changes(reading)) == ("complete", [("attached", "public.p5", "empty")])
    before = reading.events("p")
    start(reading)
    reading.finish("p")
    assert reading.events("p") == before
    stored = sources.find(reading.log, None)
    assert stored is not None
    [(root,)] = reading.source.execute("select 'public.p'::regclass::oid::bigint").fetchall()
    table = compared_table.read(reading.source, reading.log, stored, root)
    with log_state.opened(reading.log, stored, table, 100):
        assert reading.log.execute("select from content_state").fetchall() == []


@pytest.mark.parametrize(
    ("statements", "truncated"),
    [
        pytest.param(["truncate p1, p2", "drop table p_rest"], ["p1", "p2"], marks=pytest.mark.long),
        ([P5, "insert into p values (60, 1)", "truncate p1, p2, p_rest"], ["p1", "p2", "p_rest"]),
        (
            ["begin", "truncate p1", "insert into p values (1, 5)", "truncate p2, p_rest", "commit"],
            ["p1", "p2", "p_rest"],
        ),
    ],
)
def test_a_truncate_without_one_partition_is_none_of_the_table(
    reading: Snapshotting, statements: list[str], truncated: list[str]
):
    at_source(reading, *statements)
    look(reading)
    assert sorted(name for what, name, _ in changes(reading) if what == "truncated") == [
        f"public.{each}" for each in truncated
    ]
    compare_when_read(reading)


def test_a_truncate_of_the_table_settles_what_left_before(reading: Snapshotting):
    at_source(reading, "drop table p2")
    look(reading)
    at_source(reading, "truncate p")
    look(reading)
    assert (reading.state("p"), changes(reading)) == ("complete", [("dropped", "public.p2", "whole")])


def test_a_table_filled_before_it_was_attached_counts_as_no_partition(reading: Snapshotting):
    at_source(reading, "create table q (id int primary key, n int)", "insert into q values (99, 1)")
    look(reading)
    at_source(
        reading,
        "truncate q",
        "insert into q values (100, 1)",
        "alter table p attach partition q for values from (100) to (200)",
        at_once=True,  # else the worker may see the row before q is a partition, and there is nothing to compare
    )
    look(reading)
    equal(reading)
    assert changes(reading) == [("returned", "public.q", "compared")]  # the log has an earlier row of it


def start(reading: Snapshotting) -> None:
    with psycopg.connect(reading.config.source, autocommit=True) as source:
        start_backfill.start(reading.config, source, reading.log, "p", differences=True)


def compare(reading: Snapshotting) -> list[tuple[Any, ...]]:
    """By `backfill start p --differences`; what that has appended."""
    before = len(reading.events("p"))
    start(reading)
    equal(reading)
    return sorted(reading.events("p")[before:])


def compare_when_read(reading: Snapshotting) -> None:
    """By `backfill start p --differences`, once nothing else is being read."""

    def begin() -> None:
        reading.finish("p", "not read")
        start(reading)

    eventually(begin, errors=(BackfillError,))
    equal(reading)


@pytest.mark.parametrize(
    "statement",
    ["alter table p detach partition p2", pytest.param("drop table p2", marks=pytest.mark.long), "truncate p2"],
)
def test_a_comparison_settles_a_partition_that_left(reading: Snapshotting, statement: str):
    at_source(reading, statement)
    look(reading)
    if "detach" in statement:
        reading.finish("p2")  # which is read as its own table
    assert compare(reading) == [("delete", "10"), ("delete", "11"), ("delete", "12")]
    assert [settled for *_, settled in changes(reading)] == ["compared"]
    complete = (reading.row("p") or ())[-1]
    assert complete == changes(reading, "settled_seq")[0][0] == reading.events("p", "seq")[-1][0]


def test_only_keys_within_the_bounds_of_the_partition_are_compared(reading: Snapshotting):
    reading.log.execute("delete from sequin_events where source_table_name = 'p' and record_pk = '1'")
    at_source(reading, "drop table p2", "insert into p values (13, 13)")
    look(reading)
    start(reading)
    reading.finish("p")
    reading.wait_for_stream()
    assert sorted(reading.folded("p")) == ["13", *map(str, range(2, 10))]
    settled = changes(reading, "settled_as, bounds -> 0 ->> 'bound'")
    assert settled == [("compared", "FOR VALUES FROM (10) TO (20)")]


def test_a_partition_with_vague_bounds_is_compared_with_the_whole_table(reading: Snapshotting):
    at_source(reading, "insert into p values (70, 0)")
    reading.log.execute("delete from sequin_events where source_table_name = 'p' and record_pk = '1'")
    at_source(reading, "drop table p_rest")
    look(reading)
    assert compare(reading) == [("delete", "70"), ("insert", "1")]


def test_the_log_is_kept_as_it_is(reading: Snapshotting):
    before = reading.row("p")
    at_source(reading, "drop table p2")
    look(reading)
    kept = partitions_kept.keep(reading.config, reading.log, "p")
    assert (kept.table, kept.changes, kept.always) == ("public.p", 1, False)
    assert reading.row("p") == before
    at_source(reading, "truncate p1")
    look(reading)
    partitions_kept.keep(reading.config, reading.log, "public.p", always=True)
    at_source(reading, "insert into p values (2, 2)", "truncate p1")
    look(reading)
    assert "public.p1 was truncated" in str(reading.row("p")), "a truncate is never accepted before it"
    partitions_kept.keep(reading.config, reading.log, "p")
    at_source(reading, "drop table p_rest")
    look(reading)
    assert [settled for *_, settled in changes(reading)] == ["kept"] * 4
    assert reading.row("p") == before
    found = snapshot_status.find(reading.config, reading.log)
    assert found is not None and found.unread == []
    assert [(each.table, each.always, each.kept) for each in found.partitions] == [("public.p", True, 4)]


def test_a_partition_that_is_not_read_is_settled_by_a_comparison(never: Snapshotting):
    reading = never
    at_source(reading, *MADE[:-1])
    look(reading)
    made = ("create table q (id int primary key, n int)", "insert into q values (100, 1)")
    at_source(reading, *made, "alter table p attach partition q for values from (100) to (200)")
    look(reading)
    assert compare(reading) == [("insert", "100")]


@pytest.mark.parametrize("change", [pytest.param("rename to p_first", marks=pytest.mark.long), "set schema apart"])
def test_a_comparison_is_made_again_after_another_partition_was_altered(
    reading: Snapshotting, monkeypatch: pytest.MonkeyPatch, change: str
):
    at_source(reading, "create schema if not exists apart")
    at_source(reading, "drop table p2", "drop table p_rest")
    look(reading)
    add, altered = source_rows.SourceRows.sum, list[int]()

    def alter_once(rows: source_rows.SourceRows, bounds: source_rows.Bounds) -> tuple[str, log_state.PartChecksum]:
        if not altered:
            at_source(reading, f"alter table p1 {change}")
        altered.append(1)
        return add(rows, bounds)

    monkeypatch.setattr(source_rows.SourceRows, "sum", alter_once)
    monkeypatch.setattr(worker, "CHANGED_SECONDS", 0.1)
    assert compare(reading) == [("delete", "10"), ("delete", "11"), ("delete", "12")]
    assert len(altered) == 2


def test_tables_that_begin_or_cease_to_inherit_are_stored(empty: Snapshotting):
    at_source(empty, "create table b (id int)", "create table c () inherits (b)", *MADE)
    empty.log.execute("delete from pipeline.inheritance")

    def found() -> list[tuple[bool, bool]]:
        look(empty)
        stored = "select inherits, seen_at is not null from pipeline.inheritance where child_oid <> 0 order by id"
        return empty.log.execute(stored).fetchall()

    assert found() == [(True, False)]
    assert found() == [(True, False)]
    at_source(empty, "alter table c no inherit b")
    assert found() == [(True, False), (False, True)]
    at_source(empty, "alter table c inherit b")
    assert found() == [(True, False), (False, True), (True, True)]
    at_source(empty, "drop table c")
    assert found() == []
