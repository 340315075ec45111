"""What becomes of an item: every state, and what receivers, the log and time do to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pipeline.consumers import status as consumer_status
from tests.fixtures.postgres import NEWEST, Cluster
from tests.fixtures.staged import Client, Item, Staged, Table, create, delete, insert, staging_of, update

NEVER = "1 hour"


@pytest.fixture(scope="module", params=NEWEST, ids=["pg18", "pg15"])
def staging(request: pytest.FixtureRequest, clusters: Callable[[int], Cluster]) -> Iterator[Staged]:
    with staging_of(clusters(request.param), Table("t")) as made:
        yield made


@pytest.fixture
def client(staged: Staged) -> Client:
    return create(staged.connection, max_deliveries=3)


def prepared(staged: Staged, client: Client, state: str) -> list[Item]:
    """Item 1 with seq 1, or 2 when it was touched, in that state; what was received of it last."""
    staged.moved(insert("t", id=1, v=1))
    if state == "available":
        return []
    items = client.receive(visibility=NEVER)
    if state.startswith("pending"):
        staged.moved(update("t", id=1, v=2))
    if state.endswith("expired"):
        client.expire()
    if state == "delayed":
        client.nack(*items, delay=NEVER)
    if state == "dead":
        for _ in range(2):
            client.nack(*items, delay="0")
            items = client.receive(visibility=NEVER)
        client.nack(*items)
    return items


TRANSITIONS = {
    # state before, act: seq, action, state, deliveries, has an ack_id; None: it has left
    ("available", "touch"): (2, "update", "available", 0, False),
    ("delayed", "touch"): (2, "update", "available", 0, False),
    ("delivered", "touch"): (2, "update", "pending_redelivery", 1, True),
    ("delivered, expired", "touch"): (2, "update", "available", 0, False),
    ("pending", "touch"): (3, "update", "pending_redelivery", 1, True),
    ("pending, expired", "touch"): (3, "update", "available", 0, False),
    ("dead", "touch"): (2, "update", "available", 0, False),
    ("available", "receive"): (1, "insert", "delivered", 1, True),
    ("delayed", "receive"): (1, "insert", "available", 1, False),
    ("delivered", "receive"): (1, "insert", "delivered", 1, True),
    ("delivered, expired", "receive"): (1, "insert", "delivered", 2, True),
    ("pending", "receive"): (2, "update", "pending_redelivery", 1, True),
    ("pending, expired", "receive"): (2, "update", "delivered", 1, True),
    ("dead", "receive"): (1, "insert", "dead", 3, False),
    ("delivered", "ack"): None,
    ("delivered, expired", "ack"): None,
    ("pending", "ack"): (2, "update", "available", 0, False),
    ("pending, expired", "ack"): (2, "update", "available", 0, False),
    ("dead", "ack"): (1, "insert", "dead", 3, False),
    ("delivered", "nack"): (1, "insert", "available", 1, False),
    ("pending", "nack"): (2, "update", "available", 0, False),
    ("dead", "nack"): (1, "insert", "dead", 3, False),
    ("delivered", "give_back"): (1, "insert", "available", 0, False),
    ("pending", "give_back"): (2, "update", "available", 0, False),
    ("dead", "give_back"): (1, "insert", "dead", 3, False),
    ("delivered", "extend"): (1, "insert", "delivered", 1, True),
    ("delivered, expired", "extend"): (1, "insert", "delivered", 1, True),
}


@pytest.mark.parametrize(("before", "act"), TRANSITIONS, ids=map(", ".join, TRANSITIONS))
def test_each_state_and_what_happens_in_it(staged: Staged, client: Client, before: str, act: str):
    items = prepared(staged, client, before)
    if act == "touch":
        staged.moved(update("t", id=1, v=9))
    elif act == "receive":
        client.receive(visibility=NEVER)
    else:
        getattr(client, act)(*items)
    assert client.item() == TRANSITIONS[before, act]


def test_a_late_acknowledgement_cannot_settle_a_newer_delivery(staged: Staged, client: Client):
    staged.moved(insert("t", id=1))
    (late,) = client.receive()
    client.expire()
    (newer,) = client.receive()
    assert newer.ack_id != late.ack_id
    assert (client.ack(late), client.nack(late), client.extend(late)) == (0, 0, 0)
    assert client.item() == (1, "insert", "delivered", 2, True)
    assert client.ack(newer) == 1
    assert client.item() is None


def test_an_id_of_another_consumer_settles_nothing(staged: Staged, client: Client):
    other = create(staged.connection, "other")
    staged.moved(insert("t", id=1))
    (item,) = client.receive()
    assert (other.ack(item), other.nack(item), other.extend(item), other.give_back(item)) == (0, 0, 0, 0)
    assert client.ack(item) == 1


def test_what_was_acknowledged_does_not_come_again_unless_touched(staged: Staged, client: Client):
    staged.moved(insert("t", id=1, v=1))
    client.ack(*client.receive())
    staged.moved(insert("t", id=2))
    assert [item.pk for item in client.receive()] == ["2"]
    staged.moved(delete("t", id=1))
    assert [(item.pk, item.action) for item in client.receive()] == [("1", "delete")]


def test_an_item_becomes_visible_after_its_timeout_and_extend_delays_that(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), insert("t", id=2))
    first, second = client.receive(visibility="1 minute")
    assert client.extend(second, visibility=NEVER) == 1
    client.connection.execute("update consumer_records set visible_at = visible_at - interval '2 minutes'")
    assert [(item.pk, item.deliveries) for item in client.receive()] == [("1", 2)]
    assert client.ack(first) == 0
    assert client.ack(second) == 1


def test_nacks_wait_longer_each_time_but_at_most_five_minutes(staged: Staged):
    client = create(staged.connection)
    staged.moved(insert("t", id=1))
    for wait in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300):
        items = client.receive()
        before = time.monotonic()
        client.nack(*items)
        waits = seconds(client)
        passed = time.monotonic() - before  # of the wait, since it began and before it was looked at
        assert wait - passed - 0.1 <= waits <= wait
        client.expire()


def test_a_nack_can_say_how_long(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), insert("t", id=2))
    first, second = client.receive()
    client.nack(first, delay="0")
    client.nack(second, delay="1 minute")
    assert seconds(client) <= 0  # the first, now
    client.connection.execute("update consumer_records set visible_at = null where record_pk = '1'")
    assert seconds(client) == pytest.approx(60, abs=5)
    assert [item.pk for item in client.receive()] == ["1"]


def seconds(client: Client) -> float:
    """Until the next item becomes visible."""
    row = client.connection.execute(
        "select extract(epoch from pipeline.next_visible('c') - clock_timestamp())::float"
    ).fetchone()
    assert row is not None
    return float(row[0])


def due(client: Client) -> Any:
    """Whether there is something to receive now, or later; None for neither."""
    query = "select pipeline.next_visible('c') <= clock_timestamp()"
    row = client.connection.execute(query).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("by", ["nack", "expiry"])
def test_what_has_become_visible_is_due_until_it_is_received(staged: Staged, client: Client, by: str):
    staged.moved(insert("t", id=1))
    assert due(client) is None
    items = client.receive()
    if by == "nack":
        client.nack(*items, delay="1 hour")
    assert due(client) is False
    client.expire()
    assert due(client) is True
    client.connection.execute("select pipeline.pause_consumer('c')")
    assert due(client) is None
    client.connection.execute("select pipeline.resume_consumer('c')")
    assert len(client.receive()) == 1 and due(client) is False


def test_what_receive_would_not_hand_out_is_not_due(staged: Staged):
    client = create(staged.connection, max_unacknowledged=1)
    staged.moved(insert("t", id=1), insert("t", id=2))
    client.nack(*client.receive(), delay=NEVER)
    out = client.receive()
    client.connection.execute("update consumer_records set visible_at = now() - interval '1 s' where record_pk = '1'")
    assert [item.pk for item in out] == ["2"] and client.receive() == []
    assert due(client) is False
    client.ack(*out)
    assert due(client) is True and len(client.receive()) == 1


def test_an_expired_delivery_waits_since_its_change(staged: Staged, client: Client):
    staged.moved(insert("t", id=1))
    staged.connection.execute("update sequin_events set inserted_at = inserted_at - interval '1 hour'")
    client.receive()
    staged.moved(insert("t", id=2))
    assert [each.oldest_pending_seconds < 1800 for each in status(client)] == [True]
    client.expire()
    assert [each.oldest_pending_seconds >= 3600 for each in status(client)] == [True]
    client.connection.execute("delete from consumer_records where state = 'available'")
    assert [(each.pending, each.oldest_pending_seconds >= 3600) for each in status(client)] == [(1, True)]


def status(client: Client) -> list[Any]:
    return consumer_status.find_consumers(client.connection, "c")


@pytest.mark.parametrize("by", ["nack", "expiry"])
def test_after_max_deliveries_an_item_is_a_dead_letter(staged: Staged, client: Client, by: str):
    staged.moved(insert("t", id=1, v="x"))
    for _ in range(3):
        items = client.receive()
        if by == "nack":
            client.nack(*items, delay="0")
        client.expire()
    assert client.receive() == []
    rows = client.connection.execute("select seq, record_pk, record, deliveries from pipeline.dead_records('c')")
    assert rows.fetchall() == [(1, "1", {"id": 1, "v": "x"}, 3)]


def test_dead_letters_outlive_the_log_and_can_be_retried_or_discarded(staged: Staged, client: Client):
    staged.moved(insert("t", id=1, v="x"), insert("t", id=2))
    for _ in range(3):
        client.nack(*client.receive(), delay="0")
    client.connection.execute("truncate sequin_events")
    assert count(client, "retry_dead", [1]) == 1
    assert count(client, "discard_dead", None) == 1
    assert [(item.pk, item.record, item.deliveries) for item in client.receive()] == [("1", {"id": 1, "v": "x"}, 1)]
    assert client.item("2") is None


def count(client: Client, function: str, seqs: list[int] | None) -> int:
    row = client.connection.execute(f"select pipeline.{function}('c', %s)", [seqs]).fetchone()
    assert row is not None
    return int(row[0])


def test_a_paused_consumer_hands_out_nothing_but_keeps_up(staged: Staged, client: Client):
    staged.moved(insert("t", id=1))
    items = client.receive()
    client.connection.execute("select pipeline.pause_consumer('c')")
    staged.moved(insert("t", id=2))
    assert client.receive() == []
    assert client.ack(*items) == 1
    client.connection.execute("select pipeline.resume_consumer('c')")
    assert [item.pk for item in client.receive()] == ["2"]


@pytest.mark.parametrize(("start", "expected"), [("now", ["4"]), ("2", ["3", "4"]), ("beginning", list("1234"))])
def test_a_consumer_starts_where_it_is_told_to(staged: Staged, start: str, expected: list[str]):
    staged.moved(*(insert("t", id=number) for number in (1, 2, 3)))
    client = create(staged.connection, start=start)
    staged.moved(insert("t", id=4))
    assert [item.pk for item in client.receive()] == expected


def test_a_reset_forgets_deliveries_and_begins_anew(staged: Staged, client: Client):
    staged.moved(insert("t", id=1), insert("t", id=2))
    first, second = client.receive()
    client.ack(first)
    client.connection.execute("select pipeline.reset_consumer('c', '0')")
    assert client.ack(second) == 0
    staged.shuffle()
    assert [(item.pk, item.deliveries) for item in client.receive()] == [("1", 1), ("2", 1)]
    client.connection.execute("select pipeline.reset_consumer('c', 'now')")
    staged.shuffle()
    assert client.receive() == []


REFUSALS = {
    "receive('nobody')": "42704",
    "ack('nobody', '{}')": "42704",
    "drop_consumer('nobody')": "42704",
    "create_consumer('c')": "42710",
    "create_consumer('a b')": "22023",
    "create_consumer('d', start => '5')": "22023",
    "create_consumer('d', start => 'today')": "22023",
    "create_consumer('d', kind => 'queue')": "22023",
    "create_consumer('d', tables => '{orders}')": "22023",
    "create_consumer('d', tables => array['a.b', 'a.' || repeat('*', 33)])": "22023",
    "create_consumer('d', actions => '{upsert}')": "22023",
    "create_consumer('d', max_deliveries => 0)": "22023",
    "create_consumer('d', visibility => '0')": "22023",
    "create_consumer('d', kind => 'cursor', max_deliveries => 1)": "22023",
    "receive('c', 0)": "22023",
    "receive('c', 1001)": "22023",
    "receive('c', 1, '-1 s')": "22023",
    "nack('c', '{}', '-1 s')": "22023",
    "advance('c', 1)": "42809",
    "receive('cursor')": "42809",
    "advance('cursor', 9)": "22023",
    "advance('cursor', 0, 'not me')": "55006",
}


@pytest.mark.parametrize("call", REFUSALS)
def test_wrong_calls_are_refused_by_a_code_and_a_sentence(client: Client, call: str):
    create(client.connection, "cursor", kind="cursor")
    with pytest.raises(psycopg.Error) as refused:
        client.connection.execute(f"select pipeline.{call}")
    assert refused.value.sqlstate == REFUSALS[call]


def test_a_new_consumers_pattern_may_have_32_stars(staged: Staged):
    client = create(staged.connection, tables=["*t" + "*" * 31])
    staged.moved(insert("t", id=1))
    assert [item.seq for item in client.receive()] == [1]


def test_a_stored_pattern_with_more_stars_continues_to_work(staged: Staged):
    client = create(staged.connection)
    staged.connection.execute("update pipeline.consumers set tables = array['public.' || repeat('*', 40) || '!', 'p*']")
    staged.moved(insert("t", id=1))
    assert [item.seq for item in client.receive()] == [1]


def test_a_cursor_moves_forward_only(staged: Staged):
    create(staged.connection, "cursor", kind="cursor")
    staged.moved(insert("t", id=1), insert("t", id=2))
    moves = [staged.connection.execute("select pipeline.advance('cursor', %s)", [seq]).fetchone() for seq in (2, 1)]
    assert moves == [(2,), (2,)]
