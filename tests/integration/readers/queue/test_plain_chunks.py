"""Chunks without anything odd: one statement makes the items that the five steps would, and looks each up once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pipeline.log.table import DEFAULT
from pipeline.postgres.queries import statement
from pipeline.readers.queue import items
from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Change, Client, Staged, Table, create, delete, insert, staging_of, truncate, update

CONSUMERS: dict[str, dict[str, Any]] = {
    "all": {},
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


def plain(connection: psycopg.Connection[Any], upto: int) -> tuple[int, bool]:
    """Apply the log up to there to the first consumer by that one statement: items written, and whether it is odd."""
    values = {"consumer": 1, "after": 0, "upto": upto, "patterns": [], "actions": []}
    connection.execute(statement("readers.queue", "set_planner"))
    query = items._plain_query(DEFAULT.identifier.as_string(connection))
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return int(row[0]), bool(row[1])


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
    held = sorted(client.receive(visibility="1 hour"), key=lambda item: (item.seq, item.pk))
    for settle in (client.ack, client.nack):
        if held and chance.random() < 0.6:
            settle(held.pop())
    if chance.random() < 0.3:
        client.expire()


def test_items_are_those_of_the_five_steps(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    made = worked_off(staged, seed=1)
    staged.reset()
    monkeypatch.setattr(items, "_plain_query", lambda _: b"select 0, true")
    assert worked_off(staged, seed=1) == made
    assert {row[-5] for row in made} >= {"available", "delivered", "pending_redelivery"}


def test_what_is_not_there_is_looked_up_once(staged: Staged):
    create(staged.connection)
    staged.moved(*(insert("t", id=number) for number in range(50)))
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        (before,) = connection.execute(LOOKED_UP).fetchall()[0]
        assert plain(connection, 50) == (50, False)
        (after,) = connection.execute(LOOKED_UP).fetchall()[0]
        assert after - before == 50
        connection.rollback()


@pytest.mark.parametrize("what", ODD)
def test_of_what_is_odd_nothing_is_written(staged: Staged, what: str):
    create(staged.connection)
    staged.moved(insert("t", id=1), *ODD[what])
    with psycopg.connect(staged.dsn) as connection:
        connection.execute("truncate consumer_records")
        assert plain(connection, 2) == (0, True)
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
        assert plain(connection, 1) == (0, True)
        connection.rollback()
