"""What may happen to a table while it is read: each has its plain line, and nothing is read in silence."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from pipeline.comparing import comparison
from pipeline.postgres import connections, session_settings
from pipeline.snapshots import backfills, plan, start, worker
from tests.fixtures.shuffling import move, shuffler, stored
from tests.fixtures.snapshotting import SharedSnapshotting, Snapshotting
from tests.fixtures.waiting import PATIENCE, eventually

STORED = "with (fillfactor = 10, autovacuum_enabled = off)"
TABLE = f"create table t (id int primary key, note text, big text) {STORED}"
ROWS = "insert into t select i, repeat('x', 200), 'b' from generate_series(1, 400) i"
"""Four rows a block: ranges of 67 blocks, since neither a user nor autovacuum analyzes the table."""


def begun(reading: Snapshotting) -> None:
    """Its first range of two is read."""
    reading.begin("t")
    assert reading.read()


def require_whole(reading: Snapshotting) -> None:
    reading.finish("t")
    reading.wait_for_stream()
    assert reading.folded("t") == reading.table("t")


def reason(reading: Snapshotting) -> str:
    row = reading.row("t")
    assert row is not None
    return str(row[1])


def end(reading: Snapshotting, number: int) -> tuple[str, str | None]:
    """What it ends as, and why."""

    def ended() -> tuple[str, str | None]:
        reading.look()
        reading.read()
        reading.move()
        found = backfills.find(reading.log, number)
        assert found is not None and found.finished_at
        return found.state, found.reason

    return eventually(ended)


@pytest.mark.parametrize(
    "statement", ["vacuum full t", "cluster t using t_pkey", "alter table t alter note type varchar"]
)
def test_a_table_that_is_written_anew_is_read_anew(shared: SharedSnapshotting, statement: str):
    with shared(TABLE, ROWS) as reading:
        begun(reading)
        # What is read later moves to where everything was read.
        reading.source.execute("delete from t where id < 150")
        reading.source.execute(statement.encode())
        require_whole(reading)


def test_a_table_that_is_truncated_is_whole_from_there(shared: SharedSnapshotting):
    with shared(TABLE, ROWS) as reading:
        begun(reading)
        reading.source.execute("truncate t")
        reading.source.execute("insert into t values (1, 'after', 'b')")
        require_whole(reading)


def test_a_table_that_was_never_read_is_whole_from_a_truncate_on(shared: SharedSnapshotting):
    with shared(TABLE, ROWS, snapshot="never") as reading:
        reading.look()
        assert reading.state("t") == "not read" and "PIPELINE_SNAPSHOT was never" in reason(reading)
        reading.source.execute("truncate t")
        reading.source.execute("insert into t values (1, 'after', 'b')")
        require_whole(reading)
        assert reading.events("t") == [("truncate", ""), ("insert", "1")]


@pytest.mark.parametrize(
    "statement",
    ["alter table t rename to u", "alter table t add more int default 7", "alter table t drop column big"],
)
def test_a_table_that_is_altered_is_read_on(
    shared: SharedSnapshotting, statement: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "ROWS", 4_000)
    with shared(TABLE, ROWS) as reading:
        begun(reading)
        reading.source.execute(statement.encode())
        name = "u" if "rename" in statement else "t"
        reading.look()
        reading.finish(name)
        reading.wait_for_stream()
        found = reading.log.execute(
            "select count(distinct record_pk) from public.sequin_events where record_pk <> ''"
        ).fetchone()
        assert found == (400,)
        last = reading.log.execute(
            "select record from public.sequin_events where action = 'read' order by seq desc limit 1"
        ).fetchone()
        assert last is not None
        keys = {"id", "note", *({"big"} if "drop" not in statement else ()), *({"more"} if "more" in statement else ())}
        assert set(last[0]) == keys


def test_types_that_are_altered_meanwhile(shared: SharedSnapshotting, monkeypatch: pytest.MonkeyPatch):
    """What was read before prints as it did then, as what the stream sends does."""
    monkeypatch.setattr(plan, "ROWS", 4_000)
    made = (
        "create type mood as enum ('sad', 'happy')",
        "create type place as (street text, no int)",
        f"create table t (id int primary key, mood mood, place place, note text) {STORED}",
        "insert into t select i, 'sad', row('a', i)::place, repeat('x', 200) from generate_series(1, 400) i",
    )
    with shared(*made) as reading:
        begun(reading)
        reading.wait_for_stream()
        before = len(reading.folded("t"))
        assert 0 < before < 400
        for statement in (
            "alter type mood add value 'new' before 'sad'",
            "alter type mood rename value 'sad' to 'low'",
            "alter type place add attribute zip text",
            "alter type place drop attribute street cascade",
            "alter type place add attribute street int",
            "insert into t (id, mood) values (0, 'happy')",
        ):
            reading.source.execute(statement.encode())
        reading.finish("t")
        reading.wait_for_stream()
        folded, table = reading.folded("t"), reading.table("t")
        assert folded.keys() == table.keys()
        assert sum(folded[key]["mood"] == row["mood"] for key, row in table.items()) >= len(table) - before


def test_a_table_that_is_dropped_is_forgotten(shared: SharedSnapshotting):
    with shared(TABLE, ROWS) as reading:
        begun(reading)
        (backfill,) = backfills.list_open(reading.log, stored(reading.log).id)
        reading.source.execute("drop table t")
        reading.coordinator._tables_at = float("inf")  # what is captured is looked at too late for this one
        reading.coordinator.step()
        assert reading.read() in (None, 0)

        def ended() -> None:
            reading.move()
            reading.coordinator.step()
            found = backfills.find(reading.log, backfill.id)
            assert found and (found.state, found.reason) == ("failed", "the table is no longer captured")

        eventually(ended)
        assert reading.state("t") == "not captured"


def test_a_partition_that_is_detached_and_one_that_is_attached(shared: SharedSnapshotting):
    made = (
        "create table t (id int primary key, note text) partition by range (id)",
        "create table t1 partition of t for values from (0) to (100)",
        "create table t2 partition of t for values from (100) to (200)",
        "insert into t select i, 'x' from generate_series(0, 199) i",
        "create table t3 (id int primary key, note text)",
        "insert into t3 select i, 'x' from generate_series(200, 299) i",
    )
    with shared(*made) as reading:
        reading.begin("t")
        assert reading.read() == 100
        reading.source.execute("alter table t detach partition t2")
        reading.source.execute("alter table t attach partition t3 for values from (200) to (300)")
        reading.finish("t", "not read")
        assert "partition public.t2 was detached" in str(reading.row("t"))
        reading.wait_for_stream()
        assert reading.folded("t").keys() >= reading.table("t").keys()


def test_a_locked_table_waits_with_its_holder_named_while_others_are_read(
    shared: SharedSnapshotting, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "HELD_SECONDS", PATIENCE)
    with shared(TABLE, ROWS) as reading, psycopg.connect(reading.config.source, application_name="greedy") as other:
        reading.begin("t")
        reading.source.execute("create table u (id int primary key)")
        reading.source.execute("insert into u values (1), (2)")
        reading.publish()
        reading.begin("u")
        other.execute("lock table t")
        assert reading.read() == 0
        assert (
            f"waits for pid {other.info.backend_pid} (postgres, greedy, idle in transaction), which locks it"
            in reason(reading)
        )
        assert reading.read() == 2
        assert reading.read() is None, "t is not tried again at once"
        other.rollback()
        reading.worker.held.clear()
        require_whole(reading)
        assert reason(reading) == "None"


def test_older_transactions_are_waited_for_and_named(shared: SharedSnapshotting):
    """What one wrote before the table was published may be in neither the stream nor the snapshot."""
    with (
        shared("create table other (id int primary key)") as reading,
        psycopg.connect(reading.config.source, application_name="slow") as writer,
    ):
        writer.execute("insert into other values (1)")
        for statement in (TABLE, ROWS):
            reading.source.execute(statement.encode())
        reading.publish()
        reading.look()
        reading.look()
        assert reading.state("t") == "waiting"
        assert f"pid {writer.info.backend_pid} of postgres (slow)" in reason(reading)
        writer.commit()
        require_whole(reading)


def test_a_timeout_of_the_role_makes_ranges_shorter(shared: SharedSnapshotting):
    with shared(TABLE, ROWS) as reading:
        reading.begin("t")
        before = reading.row("t")
        reader = reading.worker.reader
        copy = reader._copy

        def slow(*arguments: Any) -> None:
            reader._source.execute("set local statement_timeout = '50ms'")
            reader._source.execute("select pg_sleep(10)")

        reader._copy = slow  # type: ignore[method-assign,assignment]
        assert reading.read() == 0
        reader._copy = copy  # type: ignore[method-assign]
        now = reading.row("t")
        assert before is not None and now is not None and now[3] == before[3] + 1
        require_whole(reading)


def test_rows_without_a_key_are_there_as_often_as_in_the_table(shared: SharedSnapshotting):
    made = ("create table t (id int, note text)", "insert into t select i % 3, 'x' from generate_series(1, 10) i")
    with shared(*made) as reading:
        reading.begin("t")
        reading.source.execute("insert into t values (0, 'x'), (7, 'x')")
        reading.wait_for_stream()
        reading.finish("t")
        reading.source.execute("insert into t values (8, 'x')")
        reading.wait_for_stream()
        there = sorted(row["id"] for (row,) in reading.events("t", "record"))
        assert there == sorted(number for (number,) in reading.source.execute("select id from t").fetchall())


def test_types_that_are_altered_do_not_keep_their_tables_from_being_read(shared: SharedSnapshotting):
    """A value's text is as its type was when it was written or read: to alter a type changes no row."""
    made = (
        "create type mood as enum ('sad'); create type place as (x int, name text)",
        f"create table t (id int primary key, m mood, p place, note text) {STORED}",
        "insert into t select i, 'sad', (i, 'here')::place, repeat('x', 200) from generate_series(1, 400) i",
    )
    with shared(*made) as reading:
        begun(reading)
        for statement in (
            "alter type mood add value 'glad'",
            "alter type mood rename value 'sad' to 'blue'",
            "alter type place add attribute tall bool",
            "insert into t values (401, 'glad', row(401, 'there', true), 'new')",
            "update t set m = 'glad', p = null where id = 1",
        ):
            reading.source.execute(statement.encode())
        reading.finish("t")
        reading.wait_for_stream()
        rows = reading.source.execute("select id::text, m::text, p::text from t").fetchall()
        table = {pk: (mood, place) for pk, mood, place in rows}
        log = {pk: (row["m"], row["p"]) for pk, row in reading.folded("t").items()}
        before = {pk for pk, (mood, _) in log.items() if mood == "sad"}
        assert 0 < len(before) < 400
        assert log == {**table, **{pk: ("sad", f"({pk},here)") for pk in before}}

        with connections.connect(reading.config.source, "source", settings=session_settings.SERVER) as source:
            number = start.start(reading.config, source, reading.log, "t", differences=True).id
        assert end(reading, number) == ("complete", None)
        assert {pk: (row["m"], row["p"]) for pk, row in reading.folded("t").items()} == table


@pytest.mark.parametrize(
    ("rows_per_part", "remedy"),
    [(10_000, "start it again without --differences"), (1, "`pipeline backfill start public.t` reads its rows")],
)
def test_a_key_whose_type_does_not_take_it_any_more_is_named(
    shared: SharedSnapshotting, rows_per_part: int, remedy: str, monkeypatch: pytest.MonkeyPatch
):
    """Where the table has several parts, one may end at such a key."""
    monkeypatch.setattr(comparison, "ROWS_PER_PART", rows_per_part)
    made = (
        "create type mood as enum ('sad', 'up')",
        "create table t (id mood primary key)",
        "insert into t values ('sad'), ('up')",
    )
    with shared(*made) as reading:
        reading.finish("t")
        reading.source.execute("alter type mood rename value 'sad' to 'blue'")
        for differences, ended in ((True, "failed"), (False, "complete")):
            with connections.connect(reading.config.source, "source", settings=session_settings.SERVER) as source:
                number = start.start(reading.config, source, reading.log, "t", differences=differences).id
            state, said = end(reading, number)
            assert state == ended
            if differences:
                assert said == (
                    'invalid input value for enum public.mood: "sad" (SQLSTATE 22P02); the log has a key from before'
                    f" that type was altered: {remedy}"
                )
        assert reading.events("t") == [("read", key) for key in ("sad", "up", "blue", "up")]


@pytest.mark.long
def test_a_row_that_no_jsonb_can_hold_is_named_and_can_be_parked(shared: SharedSnapshotting):
    rows = "insert into t values (1, 'a'), (2, repeat('x', 260 * 1024 * 1024)), (3, 'c')"
    with shared("create table t (id int primary key, note text)", rows) as reading:
        reading.begin("t")
        assert reading.read()

        def stopped() -> str:
            stops = shuffler(reading.log)
            move(stops)
            assert stops.poison is not None
            return str(stops.poison)

        assert re.match(
            r"read of public\.t at .* cannot be written: string too long to represent as jsonb string"
            r" \(SQLSTATE 54000\); remove the cause, or set PIPELINE_ON_POISON=park",
            eventually(stopped),
        )
        move(shuffler(reading.log, on_poison="park"))
        reading.finish("t")
        assert reading.events("t", "action, record ->> 'note', metadata") == [
            ("read", "a", None),
            ("read", None, {"parked": 1}),
            ("read", "c", None),
        ]
