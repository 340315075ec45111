"""Unchanged values are still known when retention has dropped the events that had them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.log.partitions import EventsPartition, attached
from pipeline.log.retention import delete_rows, drop_partition, policy, preserve_values
from pipeline.log.retention.policy import RowDeletion
from pipeline.log.table import DEFAULT
from tests.fixtures.filling import Filling, big, filling
from tests.fixtures.postgres import Cluster

KNOWN = "select record_pk, (select array_agg(k order by k) from jsonb_object_keys(record) k) from pipeline.known_rows"


@pytest.fixture(scope="module")
def stage(clusters: Callable[[int], Cluster]) -> Iterator[Filling]:
    """Partitions of 20 events."""
    with filling(clusters(18), partition=20) as made:
        yield made


@pytest.fixture
def jobs(stage: Filling) -> str:
    name = stage.table("a text, id int primary key, b text, n int")
    stage.run(f"insert into {name} select {big('a')}, i, {big('b')}, 0 from generate_series(1, 3) i")
    return name


def begin_another_partition(stage: Filling) -> None:
    """All events so far are in partitions that are full."""
    for _ in range(21):
        stage.source.execute("select pg_logical_emit_message(true, 'fills', 'a partition')")
    stage.arrive()


def full(stage: Filling) -> list[EventsPartition]:
    head = stage.log.execute("select max(seq) from sequin_events").fetchone()
    assert head
    return [part for part in attached(stage.log, DEFAULT) if part.upper <= head[0]]


def drop(stage: Filling) -> None:
    """All partitions that are full, as retention drops them."""
    for partition in full(stage):
        assert preserve_values.preserve(stage.log, DEFAULT, partition, lambda: False)
        policy.record(stage.log, DEFAULT, partition.upper, partition)
        assert drop_partition.finish(stage.log, DEFAULT)


def known(stage: Filling, name: str) -> dict[str, list[str]]:
    oid = "select table_oid from pipeline.relations where table_name = %s limit 1"
    return dict(stage.log.execute(f"{KNOWN} where table_oid = ({oid}) order by 1", [name]).fetchall())


def later(stage: Filling, name: str) -> list[tuple[str, Any]]:
    """Key and unchanged columns of the new rows still in the log, which are compared with what they held."""
    events = [event for event in stage.settled(name) if event["action"] in ("insert", "update", "read")]
    found = []
    for event, row in zip(events, stage.held(name)[-len(events) :], strict=True):
        left_out = event["unchanged_columns"] or []
        assert event["record"] == {column: value for column, value in row.items() if column not in left_out}
        found.append((event["record_pk"], event["unchanged_columns"]))
    return found


def test_what_a_dropped_partition_had_is_filled_in(stage: Filling, jobs: str) -> None:
    stage.run(f"update {jobs} set a = 'short' where id = 2", f"delete from {jobs} where id = 3")
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, jobs) == {"1": ["a", "b"], "2": ["b"]}
    stage.run(f"update {jobs} set n = 1", f"update {jobs} set id = 5, n = 2 where id = 2")
    assert [event["unchanged_columns"] for event in stage.settled(jobs)] == [None] * 3
    begin_another_partition(stage)
    drop(stage)
    stage.run(f"update {jobs} set n = 3", f"update {jobs} set a = {big('c')}, b = 'b' where id = 5")
    assert later(stage, jobs)[-1:] == [("5", None)]


def test_a_carried_value_gives_way_to_a_newer_one_and_goes_with_its_row(stage: Filling, jobs: str) -> None:
    begin_another_partition(stage)
    drop(stage)
    stage.run(f"update {jobs} set a = {big('newer')}, b = 'short' where id = 1", f"delete from {jobs} where id = 2")
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, jobs) == {"1": ["a"], "3": ["a", "b"]}
    stage.run(f"truncate {jobs}", f"insert into {jobs} values ('a', 3, {big('again')}, 0)")
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, jobs) == {"3": ["b"]}
    stage.run(f"update {jobs} set n = 1")
    assert later(stage, jobs) == [("3", None)]


def test_a_crash_at_any_step_loses_and_repeats_nothing(stage: Filling, jobs: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(preserve_values, "BATCH", 1)
    begin_another_partition(stage)
    for partition in full(stage):
        asked = iter(range(10_000))
        while not preserve_values.preserve(stage.log, DEFAULT, partition, lambda: next(asked) % 7 == 6):  # noqa: B023
            monkeypatch.setattr(preserve_values, "BATCH", preserve_values.BATCH + 1)
    stage.run(f"update {jobs} set a = {big('after it was carried')}, n = 1 where id = 2")
    stage.arrive()
    drop(stage)
    stage.run(f"update {jobs} set n = 2")
    assert [unchanged for _, unchanged in later(stage, jobs)[-3:]] == [None] * 3


def test_what_is_trimmed_row_by_row_is_filled_in(stage: Filling, jobs: str) -> None:
    stage.arrive()
    head = policy.newest(stage.log, DEFAULT.identifier)
    assert head
    assert delete_rows.delete(stage.log, DEFAULT, RowDeletion(DEFAULT.identifier, head.seq - 1), 0, lambda: False)
    assert known(stage, jobs) == {str(i): ["a", "b"] for i in (1, 2, 3)}
    stage.run(f"update {jobs} set n = 1", f"update {jobs} set n = 2 where id = 2")
    assert [unchanged for _, unchanged in later(stage, jobs)] == [None] * 4


@pytest.mark.parametrize(
    ("columns", "row", "kept"),
    [
        (
            "id int primary key, note text, at timestamptz",
            "(1, 'a note of some length, but in a narrow row', now())",
            {},
        ),
        ("id int primary key, n int[]", "(1, array(select generate_series(1, 600)))", {"1": ["n"]}),
        ("id int primary key, a bigint, b numeric", "(1, 7, 8)", {}),
        ("id int primary key, a text, b text", f"(1, {big('a')}, 'twenty bytes or less')", {"1": ["a"]}),
    ],
)
def test_only_what_can_be_left_out_is_kept(stage: Filling, columns: str, row: str, kept: dict[str, list[str]]) -> None:
    name = stage.table(columns)
    stage.run(f"insert into {name} values {row}")
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, name) == kept


def become_reads(stage: Filling, name: str) -> None:
    """As if the rows that were inserted had been there before, and been read."""
    stage.arrive()
    stage.log.execute(
        "update sequin_events set action = 'read', commit_idx = commit_idx + 1"
        " where source_table_name = %s and action = 'insert'",
        [name],
    )


def test_what_was_only_read_is_filled_in_when_its_event_is_dropped(stage: Filling, jobs: str) -> None:
    become_reads(stage, jobs)
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, jobs) == {str(i): ["a", "b"] for i in (1, 2, 3)}
    stage.run(f"update {jobs} set n = 1", f"update {jobs} set id = 5, n = 2 where id = 2")
    assert later(stage, jobs) == [("1", None), ("2", None), ("3", None), ("5", None)]


def test_a_narrow_row_that_was_read_keeps_values_that_may_be_toasted(stage: Filling) -> None:
    name = stage.table("id int primary key, note text, v text, at timestamptz")
    stage.run(f"insert into {name} values (1, 'a note of some length, but in a narrow row', 'v', now())")
    become_reads(stage, name)
    begin_another_partition(stage)
    drop(stage)
    assert known(stage, name) == {"1": ["note"]}


def test_tables_whose_updates_have_all_values_keep_nothing(stage: Filling) -> None:
    full_rows = stage.table("id int primary key, a text", "alter table {} replica identity full")
    keyless = stage.table("id int, a text")
    for name in (full_rows, keyless):
        stage.run(f"insert into {name} values (1, {big('a')})")
    begin_another_partition(stage)
    drop(stage)
    assert (known(stage, full_rows), known(stage, keyless)) == ({}, {})
