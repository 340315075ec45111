"""Chunks without anything odd: one statement makes the items that the five steps would, of one reading of the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pipeline.consumers.queue import consumers, queue_apply
from pipeline.consumers.queue.queue_apply import AppliedChunk
from pipeline.log.table import DEFAULT
from pipeline.postgres.queries import statement
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Change, Client, Staged, Table, create, delete, insert, staging_of, truncate, update
from tests.fixtures.waiting import PATIENCE

CONSUMERS: dict[str, dict[str, Any]] = {
    "all": {},
    "all-too": {},
    "one-table": {"tables": ["public.t"]},
    "deletes": {"actions": ["delete"]},
    "inserts": {"tables": ["public.t"], "actions": ["insert", "update"]},
}
MADE = """
    select c.name, r.source_table_oid, r.record_pk, r.unkeyed, r.seq, r.queued_seq, r.commit_lsn, r.commit_idx,
        r.action, r.record, r.event, r.group_id, r.state, r.ack_id is null, r.visible_at is null, r.deliveries,
        r.delivered_seq
    from consumer_records r join pipeline.consumers c on c.id = r.consumer_id order by 1, 2, 3, 4
"""
POSITIONS = """
    select p.folded_seq from pipeline.consumer_progress p join pipeline.consumers c on abs(p.consumer_id) = c.id
    order by c.id
"""
LOOKED_UP = "select pg_stat_get_xact_numscans('public.consumer_records_pkey'::regclass)"
ODD: dict[str, list[Change]] = {
    "a key that has changed": [update("t", {"id": 1}, id=9)],
    "a row without a key": [insert("keyless", x=1)],
    "a truncate": [truncate("t")],
}


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t"), Table("other"), Table("keyless", ())) as made:
        yield made


def plain(connection: psycopg.Connection[Any], upto: int) -> AppliedChunk:
    """Apply the log up to there to all consumers by that one statement."""
    connection.execute(statement("consumers.queue", "set_planner"))
    whole = [replace(consumer, applied_seq=0) for consumer in consumers.list_consumers(connection)]
    return queue_apply.apply_plain(connection, DEFAULT.identifier, whole, upto)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """For whom that statement is executed from now on, each time."""
    asked, apply = list[list[str]](), queue_apply.apply_plain

    def note(*arguments: Any) -> AppliedChunk:
        asked.append(sorted(consumer.name for consumer in arguments[2]))
        return apply(*arguments)

    monkeypatch.setattr(queue_apply, "apply_plain", note)
    return asked


def worked_off(staged: Staged, seed: int) -> list[tuple[Any, ...]]:
    """What is in the queues after each step of changes and clients, which the seed decides."""
    chance, seen = random.Random(seed), list[tuple[Any, ...]]()
    clients = [create(staged.connection, name, **options) for name, options in CONSUMERS.items()]
    for step in range(8):
        staged.moved(*(_change(chance, step) for _ in range(6)))
        for client in clients:
            _work(client, chance)
        seen += [(step, *row) for row in staged.connection.execute(MADE)]
    return seen


def _change(chance: random.Random, step: int) -> Change:
    table, number = chance.choice(("t", "t", "other")), chance.randrange(6)
    if step % 3 == 2 and chance.random() < 0.3:
        return chance.choice(
            [truncate(table), update(table, {"id": number + 1}, id=number), insert("keyless", x=number)]
        )
    return chance.choice(
        [
            insert(table, id=number),
            update(table, id=number),
            update(table, {"v": 1}, id=number, v=2),
            delete(table, id=number),
        ]
    )


def _work(client: Client, chance: random.Random) -> None:
    """Receive, settle some, and let some become visible again: never because time has passed."""
    held = sorted(client.receive(visibility="1 hour"), key=lambda item: (item.seq, item.pk))
    if held and chance.random() < 0.6:
        client.ack(held.pop())
    if held and chance.random() < 0.6:
        client.nack(held.pop(), delay="1 hour")
    if chance.random() < 0.3:
        client.expire()


def test_items_are_those_of_the_five_steps(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    made = worked_off(staged, seed=1)
    staged.reset()
    monkeypatch.setattr(queue_apply, "can_be_plain", lambda _: False)
    assert worked_off(staged, seed=1) == made
    assert {row[-5] for row in made} >= {"available", "delivered", "pending_redelivery"}


def test_what_is_not_there_is_looked_up_once(staged: Staged):
    create(staged.connection)
    staged.moved(*(insert("t", id=number) for number in range(50)))
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        (before,) = connection.execute(LOOKED_UP).fetchall()[0]
        assert plain(connection, 50) == AppliedChunk(changed=[1], odd=[])
        (after,) = connection.execute(LOOKED_UP).fetchall()[0]
        assert after - before == 50
        connection.rollback()


READ = """
    select sum(pg_stat_get_xact_tuples_returned(i.indexrelid))
    from pg_inherits p join pg_index i on i.indrelid = p.inhrelid where p.inhparent = 'public.sequin_events'::regclass
"""


def test_events_are_read_once_for_all_that_stand_at_one_position(staged: Staged):
    for name, options in CONSUMERS.items():
        create(staged.connection, name, **options)
    staged.moved(*(insert("t", id=number) for number in range(50)))
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        (before,) = connection.execute(READ).fetchall()[0]
        assert plain(connection, 50) == AppliedChunk(changed=[1, 2, 3, 5], odd=[])
        (after,) = connection.execute(READ).fetchall()[0]
        assert after - before == 50
        made = connection.execute("select consumer_id, count(*) from consumer_records group by 1 order by 1").fetchall()
        assert made == [(1, 50), (2, 50), (3, 50), (5, 50)]
        connection.rollback()


def test_what_is_odd_for_one_is_plain_for_the_others(staged: Staged):
    clients = [create(staged.connection, name, tables=[f"public.{name}"]) for name in ("t", "other", "keyless")]
    staged.moved(insert("t", id=1), insert("other", id=1), insert("keyless", x=1), update("other", {"id": 1}, id=2))
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        assert plain(connection, 4) == AppliedChunk(changed=[1], odd=[2, 3])
        connection.rollback()
    assert [sorted((item.pk, item.action) for item in client.receive()) for client in clients] == [
        [("1", "insert")],
        [("1", "delete"), ("2", "update")],
        [("", "insert")],
    ]


@pytest.mark.parametrize("holder", ["first", "second"])
def test_what_a_client_of_one_holds_is_deferred_for_that_one_alone(staged: Staged, holder: str):
    for name in ("first", "second"):
        create(staged.connection, name)
    staged.moved(insert("t", id=1, v=1))
    other = {"first": "second", "second": "first"}[holder]
    with psycopg.connect(staged.dsn) as open_one:
        slow = Client(open_one, holder)
        slow.ack(*slow.receive())
        staged.moved(update("t", id=1, v=2))
        assert [item.record["v"] for item in Client(staged.connection, other).receive()] == [2]
        open_one.commit()
    staged.shuffle()
    assert [item.record["v"] for item in Client(staged.connection, holder).receive()] == [2]


@pytest.mark.parametrize("what", ODD)
def test_of_what_is_odd_nothing_is_written(staged: Staged, what: str):
    create(staged.connection)
    staged.moved(insert("t", id=1), *ODD[what])
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        assert plain(connection, 2) == AppliedChunk(changed=[], odd=[1])
        assert connection.execute("select count(*) from consumer_records").fetchone() == (0,)
        connection.rollback()


@pytest.mark.parametrize("waits", ["consumer_records", "pipeline.consumer_touches"])
def test_a_queue_with_a_truncate_or_what_is_deferred_is_odd(staged: Staged, waits: str):
    create(staged.connection)
    staged.moved(insert("t", id=1))
    with psycopg.connect(staged.dsn) as connection:
        connection.execute(
            f"insert into {waits} (consumer_id, source_table_oid, record_pk, unkeyed, seq, queued_seq, action)"
            " values (1, 1000, '', 7, 7, 7, 'truncate')".encode()
        )
        assert plain(connection, 1) == AppliedChunk(changed=[], odd=[1])
        connection.rollback()


def test_who_was_odd_goes_on_alone_until_a_chunk_is_not(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    """What a statement that finds something odd costs is paid once, where tables have no keys."""
    create(staged.connection, "t", tables=["public.t"])
    create(staged.connection, "all")
    asked = noted(monkeypatch)
    shuffler = staged.shuffler()
    for change in (
        insert("t", id=1),
        insert("keyless", x=1),
        insert("keyless", x=2),
        insert("t", id=2),
        insert("t", id=3),
    ):
        staged.commit(change)
        move(shuffler)
    assert asked == [["all", "t"], ["all", "t"], ["t"], ["t"], ["all", "t"]]


def test_who_lags_less_is_met_and_goes_on_together(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    staged.moved(*(insert("t", id=number) for number in range(9)))
    for start in (0, 4, 6):
        create(staged.connection, f"from-{start}", start=str(start))
    create(staged.connection, "every", start="5", collapse=False)
    asked = noted(monkeypatch)
    queue_apply.catch_up(
        staged.connection, staged.source, DEFAULT, consumers.list_consumers(staged.connection), within=PATIENCE
    )
    assert asked == [["from-0"], ["from-0", "from-4"], ["from-0", "from-4", "from-6"]]
    assert [seq for (seq,) in staged.connection.execute(POSITIONS)] == [9, 9, 9, 9]


def test_many_that_stand_at_one_position_are_filled_in_several_chunks(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    staged.moved(insert("t", id=1))
    for name in "abc":
        create(staged.connection, name)
    monkeypatch.setattr(queue_apply, "MAX_CHUNK_CONSUMERS", 2)
    asked = noted(monkeypatch)
    queue_apply.catch_up(
        staged.connection, staged.source, DEFAULT, consumers.list_consumers(staged.connection), within=PATIENCE
    )
    assert asked == [["a", "b"], ["c"]]
    assert [len(Client(staged.connection, name).receive()) for name in "abc"] == [1, 1, 1]


def test_who_is_administered_keeps_nobody_behind_who_stands_there_too(staged: Staged):
    clients = [create(staged.connection, name) for name in ("held", "free")]
    with psycopg.connect(staged.dsn) as administrator:
        administrator.execute("select pipeline.reset_consumer('held')")
        staged.moved(insert("t", id=1))
        assert [len(client.receive()) for client in clients] == [0, 1]
    staged.shuffle()
    assert [item.pk for item in clients[0].receive()] == ["1"]
