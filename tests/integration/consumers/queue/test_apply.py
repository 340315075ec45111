"""How the log becomes items: the last change of each row decides, and the shuffler waits for no client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pipeline.consumers.queue import consumers, queue_apply, queue_pace
from pipeline.consumers.queue.queue_apply import CatchUpResult
from pipeline.log import table as events_log
from pipeline.log.shuffling import routes
from pipeline.log.shuffling import shuffler as worker
from pipeline.log.table import EventsTable
from pipeline.process.run_delay import ShortCores
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases
from tests.fixtures.staged import (
    Change,
    Client,
    Staged,
    Table,
    create,
    delete,
    insert,
    message,
    read,
    staging_of,
    truncate,
    update,
)
from tests.fixtures.waiting import eventually

TABLES = (
    Table("t"),
    Table("other"),
    Table("pair", ("a", "b")),
    Table("floats", ("x",), (("x", 701),)),
    Table("flags", ("x",), (("x", 16),)),
    Table("keyless", ()),
    Table("parts"),
    Table("parts_1", root="parts"),
)
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, *TABLES) as made:
        yield made


@pytest.fixture
def client(staged: Staged) -> Client:
    return create(staged.connection)


def got(client: Client) -> list[tuple[str, str]]:
    """record_pk and action of what is received."""
    return [(item.pk, item.action) for item in client.receive()]


COLLAPSES: dict[str, tuple[list[Change], str]] = {
    "insert, update, delete": ([insert("t", id=1), update("t", id=1), delete("t", id=1)], "delete"),
    "delete, insert": ([delete("t", id=1), insert("t", id=1)], "insert"),
    "insert, update": ([insert("t", id=1), update("t", id=1)], "update"),
    "delete, insert, delete, insert": ([delete("t", id=1), insert("t", id=1)] * 2, "insert"),
}


@pytest.mark.parametrize("together", [True, False], ids=["in one transaction", "one by one"])
@pytest.mark.parametrize("case", COLLAPSES)
def test_the_last_change_of_a_row_decides(staged: Staged, client: Client, case: str, together: bool):
    changes, expected = COLLAPSES[case]
    if together:
        staged.moved(*changes)
    else:
        for change in changes:
            staged.moved(change)
    assert got(client) == [("1", expected)]


READS: dict[str, tuple[list[Change], str]] = {
    "of a row that is not in the log": ([read("t", id=1, v="read")], "read"),
    "of a row that is there": ([insert("t", id=1, v="old"), read("t", id=1, v="read")], "read"),
    "of a row that was deleted before": ([delete("t", id=1), read("t", id=1, v="read")], "read"),
    "of a row that is read again": ([read("t", id=1, v="old"), read("t", id=1, v="read")], "read"),
    "then changed": ([read("t", id=1, v="old"), update("t", id=1, v="read")], "update"),
    "then deleted": ([read("t", id=1, v="old"), delete("t", id=1, v="read")], "delete"),
}


@pytest.mark.parametrize("case", READS)
def test_a_read_makes_or_replaces_the_item_of_its_row(staged: Staged, client: Client, case: str):
    changes, expected = READS[case]
    for change in changes:
        staged.moved(change)
    assert [(item.pk, item.action, item.record) for item in client.receive()] == [("1", expected, changes[-1].record)]


def test_a_read_of_a_row_that_is_delivered_is_delivered_again(staged: Staged, client: Client):
    staged.moved(insert("t", id=1, v=1))
    (held,) = client.receive()
    staged.moved(read("t", id=1, v=2), read("t", id=2, v=2))
    assert got(client) == [("2", "read")]
    assert client.ack(held) == 1
    assert [(item.action, item.record) for item in client.receive()] == [("read", {"id": 1, "v": 2})]


def test_reads_of_one_group_are_delivered_one_by_one(staged: Staged):
    client = create(staged.connection, group_by=["v"])
    staged.moved(read("t", id=1, v="a"), read("t", id=2, v="a"), read("t", id=3, v="b"))
    assert got(client) == [("1", "read"), ("3", "read")]


def test_rows_without_a_key_that_were_read_are_items_of_their_own(staged: Staged, client: Client):
    staged.moved(read("keyless", v=1), read("keyless", v=1))
    assert got(client) == [("", "read"), ("", "read")]


@pytest.fixture
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster) as config, Stage(config) as made:
        yield made


def test_the_last_change_of_a_row_stays_and_a_delete_wins(stage: Stage):
    stage.run("create table r (id int primary key, v text)")
    client = create(stage.log)
    stage.start()
    stage.run("insert into r values (2, 'old')")
    stage.arrive()
    client.ack(*client.receive())
    stage.transaction(
        "insert into r values (1, 'a')", "update r set v = 'b' where id = 1", "delete from r where id = 1"
    )
    stage.transaction("delete from r where id = 2", "insert into r values (2, 'new')")
    stage.run("update r set id = 3")
    rows = stage.rows("select record_pk from public.sequin_events where source_table_name = 'r' order by seq")
    assert [row["record_pk"] for row in rows] == list("2111223")
    items = {item.pk: (item.action, item.record) for item in client.receive() if item.action != "message"}
    assert items == {"1": ("delete", {"id": 1}), "2": ("delete", {"id": 2}), "3": ("update", {"id": 3, "v": "new"})}


def test_a_key_longer_than_an_index_takes_as_text(stage: Stage):
    stage.run("create table r (id int, k bytea, primary key (id, k))")
    client = create(stage.log)
    stage.start()
    stage.run(
        "insert into r select 1, string_agg(sha512(g::text::bytea), '') from generate_series(1, 40) g",
        "update r set k = k || '\\x00'",
        "update r set id = 2",
    )
    query = "select record_pk as pk, record from public.sequin_events where source_table_name = 'r' order by seq"
    rows = [(row["pk"], row["record"]["id"], row["record"]["k"]) for row in stage.rows(query)]
    items = {item.pk: item.action for item in client.receive() if item.action != "message"}
    assert [number for _, number, _ in rows] == [1, 1, 2]
    keys = [f'[{number},"\\{key}"]' for _, number, key in rows]
    assert [pk for pk, *_ in rows] == [f"sha256:{sha256(key.encode()).hexdigest()}" for key in keys]
    assert items == {rows[0][0]: "delete", rows[1][0]: "delete", rows[2][0]: "update"}


def test_delete_then_insert_of_a_row_that_is_out_leaves_the_live_row(staged: Staged, client: Client):
    staged.moved(insert("t", id=1, v=1))
    out = client.receive()
    staged.moved(delete("t", id=1), insert("t", id=1, v=2))
    client.ack(*out)
    assert [(item.action, item.record) for item in client.receive()] == [("insert", {"id": 1, "v": 2})]


KEYS: dict[str, tuple[Change, list[tuple[str, dict[str, Any]]]]] = {
    "one column": (update("t", {"id": 1}, id=2), [("1", {"id": 1}), ("2", {"id": 2})]),
    "part of two": (
        update("pair", {"b": 1}, a="x", b=2),
        [('["x",1]', {"a": "x", "b": 1}), ('["x",2]', {"a": "x", "b": 2})],
    ),
    "boolean": (update("flags", {"x": True}, x="f"), [("t", {"x": True}), ("f", {"x": "f"})]),
    "float": (update("floats", {"x": 1e20}, x=2), [("1e+20", {"x": 10**20}), ("2", {"x": 2})]),
    "not the key": (update("t", {"v": 1}, id=2, v=2), [("2", {"id": 2, "v": 2})]),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_row_that_changes_its_key_is_deleted_at_the_old_one(staged: Staged, client: Client, case: str):
    change, expected = KEYS[case]
    staged.moved(change)
    assert sorted((item.pk, item.record) for item in client.receive()) == sorted(expected)


def test_a_key_that_moves_on_and_comes_back_is_one_live_row(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), update("t", {"id": 1}, id=2), update("t", {"id": 2}, id=1))
    assert sorted(got(client)) == [("1", "update"), ("2", "delete")]


def test_keyless_rows_and_messages_are_items_of_their_own(staged: Staged, client: Client):
    staged.moved(insert("keyless", v=1), insert("keyless", v=1), message("a"), message("b"), insert("t", id=""))
    staged.moved(update("t", id="", v=2))
    items = client.receive()
    assert [(item.action, item.record) for item in items] == [
        ("insert", {"v": 1}),
        ("insert", {"v": 1}),
        ("message", {"content": "a"}),
        ("message", {"content": "b"}),
        ("update", {"id": "", "v": 2}),
    ]
    assert client.ack(*items) == 5


FILTERS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "tables": ({"tables": ["public.t"]}, [("1", "update"), ("2", "insert")]),
    "pattern": ({"tables": ["public.o*r"]}, [("1", "insert")]),
    "no wildcard of LIKE": ({"tables": ["public._", "%.t"]}, []),
    "actions": ({"actions": ["insert"]}, [("1", "insert"), ("2", "insert"), ("1", "insert")]),
    "messages": ({"tables": [".note"]}, [("", "message")]),
    "reads": ({"actions": ["read"]}, [("t", "read"), ("2", "read")]),
    "reads of a table": ({"actions": ["read", "delete"], "tables": ["public.f*s"]}, [("t", "read"), ("2", "read")]),
}


@pytest.mark.parametrize("case", FILTERS)
def test_a_consumer_has_what_it_asked_for(staged: Staged, case: str):
    options, expected = FILTERS[case]
    client = create(staged.connection, **options)
    staged.moved(insert("t", id=1), insert("t", id=2), insert("other", id=1), update("t", id=1), message("hi"))
    staged.moved(read("flags", x="t"), read("floats", x="2"))
    assert got(client) == expected


def test_a_truncate_removes_free_items_and_waits_for_items_in_flight(staged: Staged, client: Client):
    staged.moved(*(insert("t", id=number) for number in (1, 2)), insert("other", id=1))
    (held,) = client.receive(1)
    staged.moved(truncate("t"), insert("t", id=3))
    assert got(client) == [("1", "insert")], "the other table's only"
    client.ack(held)
    (emptied,) = client.receive()
    assert (emptied.action, emptied.pk) == ("truncate", "")
    assert got(client) == []
    client.ack(emptied)
    assert got(client) == [("3", "insert")]


def test_a_truncated_partition_keeps_its_place_among_the_rows_of_its_root(staged: Staged, client: Client):
    staged.moved(insert("parts", id=1), truncate("parts_1"), insert("parts", id=2))
    for expected in ("insert", "truncate", "insert"):
        (item,) = client.receive()
        assert item.action == expected
        client.ack(item)


def test_an_item_in_flight_during_a_truncate_stays_behind_the_truncate(staged: Staged, client: Client):
    staged.moved(insert("t", id=1))
    (held,) = client.receive()
    staged.moved(truncate("t"))
    staged.moved(insert("t", id=1, v=2))
    assert got(client) == []
    client.ack(held)
    (emptied,) = client.receive()
    client.ack(emptied)
    assert [item.record for item in client.receive()] == [{"id": 1, "v": 2}]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_shuffler_continues_while_a_client_holds_a_row(staged: Staged, client: Client, end: str):
    staged.moved(insert("t", id=1, v=1), insert("t", id=2))
    with psycopg.connect(staged.dsn) as open_one:
        slow = Client(open_one, "c")
        items = slow.receive()
        slow.ack(items[0])
        staged.moved(update("t", id=1, v=2))
        staged.moved(update("t", id=1, v=3), insert("t", id=3))
        assert got(client) == [("3", "insert")]
        getattr(open_one, end)()
    staged.shuffle()
    again = client.receive()
    assert (again[0].pk, again[0].record) == ("1", {"id": 1, "v": 3})
    assert len(again) == (1 if end == "commit" else 2)
    assert staged.connection.execute("select count(*) from pipeline.consumer_touches").fetchone() == (0,)


def test_a_touch_in_waiting_never_comes_after_a_newer_change(staged: Staged, client: Client):
    staged.moved(insert("t", id=1, v=1))
    with psycopg.connect(staged.dsn) as open_one:
        Client(open_one, "c").ack(*Client(open_one, "c").receive())
        staged.moved(update("t", id=1, v=2))
        open_one.commit()
    staged.moved(delete("t", id=1))
    assert got(client) == [("1", "delete")]
    client.expire()
    (item,) = client.receive()
    client.ack(item)
    staged.shuffle()
    assert got(client) == []


@pytest.mark.parametrize("call", ["drop_consumer('c')", "reset_consumer('c')", "pause_consumer('c')"])
def test_the_shuffler_does_not_wait_for_who_administers(staged: Staged, client: Client, call: str):
    staged.moved(insert("t", id=1))
    with psycopg.connect(staged.dsn) as administrator:
        administrator.execute(f"select pipeline.{call}")
        staged.moved(insert("t", id=2))
        administrator.rollback()
    staged.shuffle()
    assert got(client) == [("1", "insert"), ("2", "insert")]


def test_one_that_is_administered_keeps_no_other_behind(staged: Staged, client: Client):
    with psycopg.connect(staged.dsn) as administrator:
        administrator.execute("select pipeline.reset_consumer('c')")
        staged.moved(insert("t", id=1))
        staged.moved(insert("t", id=2))
        late = create(staged.connection, "late", start="1")
        staged.shuffle()
        assert got(late) == [("2", "insert")]


def test_a_drop_waits_for_the_shuffler_and_leaves_nothing(staged: Staged, client: Client):
    staged.commit(insert("t", id=1))
    with psycopg.connect(staged.dsn, autocommit=True) as administrator:
        dropping = threading.Thread(target=administrator.execute, args=["select pipeline.drop_consumer('c')"])
        with staged.connection.transaction():
            consumers.claim(staged.connection, consumers.list_consumers(staged.connection))
            dropping.start()
            eventually(lambda: staged.connection.execute(WAITING).fetchone() is not None)
        dropping.join()
    staged.shuffle()
    left = "select (select count(*) from consumer_records), (select count(*) from pipeline.consumer_progress)"
    assert staged.connection.execute(left).fetchone() == (0, 0)


def test_who_is_behind_is_caught_up_in_chunks(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue_apply, "MAX_CHUNK_EVENTS", 3)
    monkeypatch.setattr(queue_apply, "MIN_CHUNK_EVENTS", 3)
    staged.moved(*(insert("t", id=number) for number in range(10)))
    late = create(staged.connection)
    staged.commit(*(insert("t", id=number) for number in range(8, 13)))
    shuffler = staged.shuffler()
    seen = []
    while shuffler.step() >= 0:
        seen.append(staged.connection.execute("select folded_seq from pipeline.consumer_progress").fetchone())
    assert seen[-1] == (15,)
    assert len(seen) >= 4
    assert sorted(int(item.pk) for item in late.receive()) == [*range(13)]


def test_the_log_comes_first_while_there_is_something_to_move(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """By a clock that advances by a millisecond with each step, and by ten while items are made."""
    create(staged.connection)
    now, made = [1000.0], []

    def catch_up(*_: object) -> CatchUpResult:
        made.append(now[0])
        now[0] += 0.01
        return CatchUpResult.LAGGING

    monkeypatch.setattr(queue_apply, "catch_up", catch_up)
    for module in (worker, queue_pace):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    shuffler = staged.shuffler()
    for number in range(100):
        staged.commit(insert("t", id=number))
        assert shuffler.step() == 1
        now[0] += 0.001
    assert len(made) == 2
    assert (made[1] - made[0]) * queue_pace.SHARE == pytest.approx(0.01, rel=0.1)
    shuffler.step()
    assert len(made) == 3


@pytest.mark.parametrize("lag", [queue_pace.LAG_BYTES + 1_000, 0])
def test_items_are_made_in_turns_under_lag_and_at_once_near_the_head(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, lag: int
):
    """Where this process never gets a core soon enough."""
    monkeypatch.setattr(ShortCores, "degree", lambda _: 1.0)
    monkeypatch.setattr(queue_pace, "LAG_EVERY", 0.0)
    monkeypatch.setattr(queue_apply, "MAX_CHUNK_EVENTS", 10)
    monkeypatch.setattr(queue_apply, "MIN_CHUNK_EVENTS", 10)
    client = create(staged.connection)
    staged.commit(*(insert("t", id=number) for number in range(100)))
    staged.connection.execute(
        "insert into pipeline.wal_written (source_id, epoch, lsn, written_at)"
        " select source_id, epoch, position + %s, now() from pipeline.replication_progress",
        (lag,),
    )
    shuffler, waited = staged.shuffler(), 0
    try:
        while staged.connection.execute("select folded_seq from pipeline.consumer_progress").fetchone() != (100,):
            if shuffler.step() < 0:
                waited += 1
                shuffler.wait()
    finally:
        staged.connection.execute("truncate pipeline.wal_written")
    assert len(client.receive(1_000)) == 100
    assert waited == 0 if lag == 0 else waited >= 5


def test_items_wait_for_no_disk_and_the_log_does(staged: Staged):
    create(staged.connection)
    staged.connection.execute("""
        create table commits (made text, setting text);
        create function note() returns trigger language plpgsql as $$ begin
            insert into commits values (tg_relid::regclass, current_setting('synchronous_commit')); return null; end $$;
        create trigger note after update on pipeline.shuffle_progress for each row execute function note();
        create trigger note after insert on public.consumer_records for each row execute function note();
    """)
    try:
        staged.moved(insert("t", id=1))
        noted = staged.connection.execute("select made, setting from commits").fetchall()
    finally:
        staged.connection.execute("drop function note() cascade; drop table commits")
    assert noted == [("pipeline.shuffle_progress", "on"), ("consumer_records", "off")]


def test_another_events_table_is_what_receivers_see(cluster: Cluster):
    with cluster.database("events", cluster.template) as dsn, psycopg.connect(dsn, autocommit=True) as log:
        for table in (EventsTable("public", "mine"), events_log.DEFAULT):
            routes.prepare(log, None, table, ())
            shown = log.execute("select pg_get_viewdef('pipeline.events'::regclass)").fetchone()
            assert shown is not None
            assert f"FROM {table.name}" in shown[0].replace("public.", "")
