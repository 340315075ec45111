"""Consumers that do not collapse: every event is an item, one of a row or group is out at a time, and in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pipeline.consumers import status
from pipeline.consumers.queue import consumers
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import (
    Change,
    Client,
    Item,
    Staged,
    Table,
    create,
    delete,
    insert,
    listening,
    message,
    read,
    staging_of,
    truncate,
    update,
)
from tests.fixtures.waiting import eventually

TABLES = (Table("t"), Table("other"), Table("pair", ("a", "b")), Table("keyless", ()), Table("parts"))
LEAVES = (Table("parts_1", root="parts"),)
STATES = "select seq, state from public.consumer_records order by seq"
LEFT = "select (select count(*) from public.consumer_records), (select count(*) from pipeline.consumer_touches)"
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, *TABLES, *LEAVES) as made:
        yield made


@pytest.fixture
def client(staged: Staged) -> Client:
    return every(staged)


def every(staged: Staged, name: str = "c", **options: Any) -> Client:
    return create(staged.connection, name, collapse=False, **options)


def drained(client: Client) -> list[tuple[int, str]]:
    """seq and record_pk of all there is, as it is received and acknowledged one call after the other."""
    given: list[tuple[int, str]] = []
    while items := client.receive():
        given += [(item.seq, item.pk) for item in items]
        assert client.ack(*items) == len(items)
    return given


def seqs(items: list[Item]) -> list[int]:
    return [item.seq for item in items]


def states(staged: Staged) -> list[tuple[int, str]]:
    return staged.connection.execute(STATES).fetchall()


def settled(staged: Staged) -> bool:
    return staged.connection.execute(LEFT).fetchone() == (0, 0)


HISTORY = [insert("t", id=1, v=1), update("t", id=1, v=2), delete("t", id=1), insert("t", id=1, v=3)]


@pytest.mark.parametrize("together", [True, False], ids=["in one transaction", "one by one"])
def test_every_change_of_a_row_is_given_in_order_one_at_a_time(staged: Staged, client: Client, together: bool):
    for changes in [HISTORY] if together else [[change] for change in HISTORY]:
        staged.moved(*changes)
    given = []
    for _ in HISTORY:
        (item,) = client.receive()
        assert client.receive() == []
        given.append((item.action, item.record))
        assert client.ack(item) == 1
    assert given == [(change.action, change.record) for change in HISTORY]
    assert client.receive() == [] and settled(staged)


def test_rows_do_not_wait_for_each_other(staged: Staged, client: Client):
    staged.moved(*(insert("t", id=number) for number in (1, 2)), *(update("t", id=number) for number in (1, 2)))
    staged.moved(read("t", id=1), insert("other", id=1))
    first = client.receive()
    assert seqs(first) == [1, 2, 6]
    client.ack(first[1])
    assert seqs(client.receive()) == [4]
    client.ack(first[0])
    assert seqs(client.receive()) == [3]


def test_what_has_no_row_waits_for_nothing(staged: Staged, client: Client):
    staged.moved(insert("keyless", v=1), insert("keyless", v=1), message("a"), message("a"), insert("t", id=""))
    staged.moved(update("t", id="", v=2), insert("keyless", v=1), message("a"))
    items = client.receive()
    assert seqs(items) == [1, 2, 3, 4, 5, 7, 8]
    client.ack(*items)
    assert seqs(client.receive()) == [6]


def test_a_change_of_key_is_one_item_in_the_lines_of_both_keys(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), insert("t", id=2), delete("t", id=2), update("t", {"id": 1}, id=2))
    staged.moved(insert("t", id=1), update("t", {"id": 2}, id=3), delete("t", id=3))
    assert seqs(client.receive(1)) == [1]
    (two,) = client.receive()
    client.ack(two)
    (gone,) = client.receive()
    client.ack(gone)
    assert client.receive() == [], "the row that moves to 2 is still held at 1"
    client.expire()
    (one,) = client.receive()
    client.ack(one)
    (moved,) = client.receive()
    assert (moved.seq, moved.action, moved.pk, moved.record) == (4, "update", "2", {"id": 2})
    client.ack(moved)
    assert drained(client) == [(5, "1"), (6, "3"), (7, "3")]
    assert settled(staged)


def test_many_keys_that_change_in_one_statement(staged: Staged, client: Client):
    """As `update t set id = id + 1`, from the highest: each waits for the one that leaves its new key."""
    staged.moved(*(insert("t", id=number) for number in range(50)))
    staged.moved(*(update("t", {"id": number}, id=number + 1) for number in reversed(range(50))))
    given = drained(client)
    assert sorted(given) == [(number + 1, str(number)) for number in range(50)] + [
        (100 - number, str(number + 1)) for number in reversed(range(50))
    ]
    place = {seq: given.index((seq, pk)) for seq, pk in given}
    for number in range(50):
        assert place[number + 1] < place[100 - number]


def test_a_group_gives_one_item_at_a_time_even_if_rows_change_groups(staged: Staged):
    client = every(staged, group_by=["g"])
    staged.moved(insert("t", id=1, g="a"), insert("t", id=2, g="a"), insert("t", id=3, g="b"))
    staged.moved(update("t", id=1, g="b"), delete("t", id=1), message("hi"), message("hi"))
    items = client.receive()
    assert seqs(items) == [1, 3, 6, 7], "one of each group; an item without a group is its own group"
    client.ack(items[1])
    assert client.receive() == [], "row 1 is out, though it has left its group since"
    client.ack(items[0])
    assert seqs(client.receive()) == [2, 4]
    client.expire()
    assert [seq for seq, _ in drained(client)] == [2, 4, 6, 7, 5]
    assert settled(staged)


def test_it_has_the_actions_and_tables_that_it_asked_for(staged: Staged):
    client = every(staged, actions=["delete", "read"], tables=["public.t"])
    staged.moved(insert("t", id=1), update("t", {"id": 1}, id=2), delete("t", id=2), delete("other", id=2))
    staged.moved(read("t", id=2))
    assert drained(client) == [(3, "2"), (5, "2")]


def test_a_truncate_is_one_item_that_removes_nothing(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), update("t", id=1), truncate("t"), insert("t", id=1), insert("other", id=1))
    assert seqs(client.receive()) == [1, 5]
    client.expire()
    assert [seq for seq, _ in drained(client)] == [1, 5, 2, 3, 4]


def test_a_truncated_partition_has_its_place_among_the_rows_of_its_root(staged: Staged, client: Client):
    staged.moved(insert("parts", id=1), insert("parts", id=2), truncate("parts_1"), update("parts", id=1))
    assert seqs(client.receive()) == [1, 2]
    client.expire()
    assert [seq for seq, _ in drained(client)] == [1, 2, 3, 4]


def test_a_refused_or_expired_change_keeps_its_place(staged: Staged, client: Client):
    staged.moved(*HISTORY)
    (first,) = client.receive()
    client.nack(first, delay="1 hour")
    assert client.receive() == []
    client.expire()
    (again,) = client.receive()
    assert (again.seq, again.deliveries) == (1, 2)
    client.expire()
    (third,) = client.receive()
    assert (third.seq, third.deliveries) == (1, 3)
    assert (client.ack(first), client.ack(again), client.nack(again), client.extend(again)) == (0, 0, 0, 0)
    assert client.receive() == [], "what came late has settled nothing"
    assert client.extend(third) == 1 and client.ack(third) == 1
    assert [seq for seq, _ in drained(client)] == [2, 3, 4]


def test_nothing_is_lost_when_it_is_paused(staged: Staged, client: Client):
    staged.moved(HISTORY[0])
    (held,) = client.receive()
    client.connection.execute("select pipeline.pause_consumer('c')")
    staged.moved(*HISTORY[1:3])
    assert client.receive() == [] and client.ack(held) == 1
    staged.moved(HISTORY[3])
    assert client.receive() == []
    client.connection.execute("select pipeline.resume_consumer('c')")
    assert [seq for seq, _ in drained(client)] == [2, 3, 4]


def test_a_reset_gives_every_change_again(staged: Staged, client: Client):
    staged.moved(*HISTORY)
    (held,) = client.receive()
    client.ack(held)
    (late,) = client.receive()
    client.connection.execute("select pipeline.reset_consumer('c', '1')")
    assert client.ack(late) == 0
    staged.shuffle()
    assert [seq for seq, _ in drained(client)] == [2, 3, 4]
    behind = every(staged, "late", start="2")
    staged.shuffle()
    assert [seq for seq, _ in drained(behind)] == [3, 4]
    client.connection.execute("select pipeline.drop_consumer('c'), pipeline.drop_consumer('late')")
    progress = staged.connection.execute("select count(*) from pipeline.consumer_progress").fetchone()
    assert settled(staged) and progress == (0,)


def spent(client: Client, times: int = 3) -> list[Item]:
    for _ in range(times):
        items = client.receive()
        client.nack(*items, delay="0")
    return items


@pytest.mark.parametrize("by", ["nack", "expiry"])
def test_a_dead_letter_holds_nothing_back(staged: Staged, by: str):
    client = every(staged, max_deliveries=3)
    staged.moved(*HISTORY)
    for _ in range(3):
        items = client.receive()
        if by == "nack":
            client.nack(*items, delay="0")
        client.expire()
    assert seqs(items) == [1]
    (second,) = client.receive()
    assert second.seq == 2
    staged.moved(update("t", id=1, v=9))
    dead = client.connection.execute("select seq, record, deliveries from pipeline.dead_records('c')").fetchall()
    assert dead == [(1, {"id": 1, "v": 1}, 3)]
    client.expire()
    assert [seq for seq, _ in drained(client)] == [2, 3, 4, 5]


def test_a_dead_letter_that_is_put_back_waits_for_what_is_out_and_is_next(staged: Staged):
    client = every(staged, max_deliveries=3)
    staged.moved(*HISTORY)
    spent(client)
    (second,) = client.receive()
    assert retried(client) == 1
    assert client.receive() == []
    client.ack(second)
    assert [seq for seq, _ in drained(client)] == [1, 3, 4]
    assert settled(staged)


@pytest.mark.parametrize("group_by", [None, ["g"]], ids=["of a row", "of a group"])
def test_dead_letters_that_are_put_back_come_one_by_one(staged: Staged, group_by: list[str] | None):
    client = every(staged, max_deliveries=1, group_by=group_by)
    staged.moved(insert("t", id=1, g=1), update("t", id=1, g=1), delete("t", id=1), message("m"), truncate("t"))
    for _ in range(4):
        spent(client, 1)
    assert retried(client, [9]) == 0 and retried(client) == 5
    given = []
    while items := client.receive():
        given.append(seqs(items))
        client.ack(*items)
    assert given == [[1, 4], [2], [3], [5]] and settled(staged)


def test_dead_letters_of_a_row_that_is_changed_can_be_put_back_at_any_time(staged: Staged):
    client = every(staged, max_deliveries=1)
    staged.moved(insert("t", id=1))
    spent(client, 1)
    staged.moved(update("t", id=1))
    assert retried(client) == 1
    assert seqs(client.receive()) == [2], "it was available before"
    client.expire()
    assert seqs(client.receive()) == [1], "the other has expired, and is dead"
    staged.moved(delete("t", id=1))
    assert retried(client) == 1
    client.expire()
    (second,) = client.receive()
    assert second.seq == 2 and client.ack(second) == 1
    assert [seq for seq, _ in drained(client)] == [3]
    client.connection.execute("select pipeline.discard_dead('c')")
    assert settled(staged)


def retried(client: Client, which: list[int] | None = None) -> int:
    row = client.connection.execute("select pipeline.retry_dead('c', %s)", [which]).fetchone()
    assert row is not None
    return int(row[0])


def test_the_shuffler_goes_on_while_a_client_settles_and_nothing_is_lost(staged: Staged, client: Client):
    staged.moved(insert("t", id=1))
    with psycopg.connect(staged.dsn) as open_one:
        slow = Client(open_one, "c")
        slow.ack(*slow.receive())
        staged.moved(update("t", id=1), insert("t", id=2))
        staged.moved(delete("t", id=1), update("t", id=2))
        assert seqs(client.receive(1)) == [3]
        assert states(staged) == [(1, "available"), (2, "blocked"), (3, "delivered"), (4, "blocked"), (5, "blocked")]
        open_one.commit()
    staged.shuffle()
    client.expire()
    assert [seq for seq, _ in drained(client)] == [2, 3, 4, 5]
    assert settled(staged)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_receiver_whose_transaction_is_open_is_no_obstacle(staged: Staged, client: Client, end: str):
    staged.moved(insert("t", id=1))
    with psycopg.connect(staged.dsn) as open_one:
        assert seqs(Client(open_one, "c").receive()) == [1]
        staged.moved(update("t", id=1))
        assert client.receive() == []
        getattr(open_one, end)()
    assert seqs(client.receive()) == ([] if end == "commit" else [1])
    client.expire()
    assert [seq for seq, _ in drained(client)] == [1, 2]
    staged.shuffle()
    assert settled(staged)


def test_of_two_who_settle_the_last_two_in_front_one_makes_it_available(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), delete("t", id=2), update("t", {"id": 1}, id=2))
    first, second = client.receive()
    with psycopg.connect(staged.dsn) as one, psycopg.connect(staged.dsn) as other:
        assert Client(one, "c").ack(first) == 1
        settling = threading.Thread(target=lambda: Client(other, "c").ack(second))
        settling.start()
        eventually(lambda: staged.connection.execute(WAITING).fetchone() is not None)
        one.commit()
        settling.join()
        other.commit()
    assert drained(client) == [(3, "2")]


def test_receivers_share_it_without_waiting(staged: Staged):
    client = every(staged, group_by=["g"])
    staged.moved(*(insert("t", id=number, g=number % 3) for number in range(9)))
    with psycopg.connect(staged.dsn) as open_one:
        assert seqs(Client(open_one, "c").receive(1)) == [1]
        assert seqs(client.receive()) == [2, 3]


def test_who_settles_has_to_see_what_others_have_added(staged: Staged, client: Client):
    with psycopg.connect(staged.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for call in ("receive('c')", "ack('c', '{}')", "nack('c', '{}')", "retry_dead('c')"):
            with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="have to see each other"):
                connection.execute(f"select pipeline.{call}")
            connection.rollback()


def test_max_unacknowledged_is_exact(staged: Staged):
    client = every(staged, max_unacknowledged=2)
    staged.moved(*(insert("t", id=number) for number in range(4)), update("t", id=0))
    items = client.receive()
    assert seqs(items) == [1, 2] and client.receive() == []
    client.ack(items[0])
    third = client.receive()
    assert seqs(third) == [3]
    client.ack(*items, *third)
    assert drained(client) == [(4, "3"), (5, "0")]


def test_who_listens_is_told_when_there_is_something(staged: Staged, client: Client):
    with listening(staged) as told:
        assert told(lambda: staged.moved(insert("t", id=1)))
        items = client.receive()
        assert not told(lambda: staged.moved(update("t", id=1))), "it waits behind what is out"
        assert told(lambda: client.ack(*items)), "the next of the row is available"
        items = client.receive()
        assert not told(lambda: client.ack(*items)), "nothing has become available"


MANY = """
    insert into public.consumer_records (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq, action,
        group_id, state, is_alone)
    select (select id from pipeline.consumers), %(oid)s, case when %(one)s then '1' else number::text end, number,
        number, number, 'update', %(group)s, case when number = 3 then 'available' else 'blocked' end, false
    from generate_series(3, 10000) number
"""
FETCHED = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'consumer_records'"


@pytest.mark.parametrize("one", [True, False], ids=["of one row", "of one group"])
def test_what_it_costs_does_not_grow_with_what_is_behind(staged: Staged, one: bool):
    client = every(staged, group_by=None if one else ["g"])
    staged.moved(insert("t", id=1, g=1))
    staged.connection.execute("delete from public.consumer_records")
    staged.moved(insert("t", id=2, g=2))
    values = {"oid": staged.oid("t"), "one": one, "group": "" if one else "[1]"}
    staged.connection.execute(MANY, values)
    staged.connection.execute("update public.consumer_records set seq = 1 where queued_seq > 2")
    staged.connection.execute("analyze public.consumer_records")  # as autovacuum may at any moment
    with staged.connection.transaction():
        before = staged.connection.execute(FETCHED).fetchone()
        for _ in range(5):
            items = client.receive()
            assert len(items) == 1 + (items[0].pk == "2")
            client.extend(items[0])
            assert client.receive() == []
            client.nack(items[0], delay="0")
            client.connection.execute("select pipeline.next_visible('c')")
            client.ack(*items[1:], *client.receive())
        after = staged.connection.execute(FETCHED).fetchone()
    assert before is not None and after is not None and after[0] - before[0] < 500


def test_status_counts_what_waits_behind(staged: Staged, client: Client):
    staged.moved(*HISTORY, insert("t", id=2))
    client.receive(1)
    (found,) = status.find_consumers(client.connection, "c")
    assert (found.collapse, found.pending, found.in_flight, found.lag) == (False, 4, 1, 0)
    assert found.oldest_pending_seconds is not None
    needs = client.connection.execute("select position, needs_after from pipeline.readers where name = 'c'").fetchone()
    assert needs == (4, 0)
    client.ack(*client.receive())
    client.connection.execute("delete from consumer_records where state in ('delivered', 'available')")
    (found,) = status.find_consumers(client.connection, "c")
    needs = client.connection.execute("select needs_after from pipeline.readers where name = 'c'").fetchone()
    assert (found.pending, needs) == (3, (1,))


def test_it_stays_as_it_was_created(staged: Staged, client: Client):
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="collapse of consumer 'c' cannot be changed"):
        staged.connection.execute("update pipeline.consumers set collapse = true")
    for options in ({"collapse": None}, {"collapse": False, "kind": "cursor"}):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="collapse"):
            create(staged.connection, "d", **options)


OF_BEFORE = """
    select c.name from pipeline.consumer_progress p join pipeline.consumers c on c.id = p.consumer_id
"""
"""How a shuffler of the versions before finds its consumers."""


def test_a_server_that_would_collapse_passes_it_over(staged: Staged, client: Client):
    create(staged.connection, "collapsing")
    assert staged.connection.execute(OF_BEFORE).fetchall() == [("collapsing",)]
    assert [found.name for found in consumers.list_consumers(staged.connection)] == ["c", "collapsing"]


def test_beside_one_that_collapses(staged: Staged, client: Client):
    other = create(staged.connection, "collapsing")
    staged.moved(*HISTORY)
    assert [(item.seq, item.action) for item in other.receive()] == [(4, "insert")]
    assert [seq for seq, _ in drained(client)] == [1, 2, 3, 4]


UNCHANGED: list[Change] = [insert("pair", a="x", b=1), update("pair", {"b": 1}, a="x", b=2)]


def test_a_part_of_a_key_that_changes(staged: Staged, client: Client):
    staged.moved(*UNCHANGED, insert("pair", a="x", b=1))
    assert drained(client) == [(1, '["x",1]'), (2, '["x",2]'), (3, '["x",1]')]
