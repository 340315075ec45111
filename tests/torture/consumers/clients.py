"""Clients of a consumer at random: they acknowledge, refuse, forget, come late, and die in the middle."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from pipeline.postgres.connections import hang_up
from tests.torture.consumers.model import Delivery, Wish

RECEIVE = """
    select ack_id, seq, source_table_name, record_pk, action, record from pipeline.receive(%s, %s, %s::interval)
"""
SHORT, LONG = (0.05, 0.4), 60.0
"""Seconds of visibility of those who may forget, and of those who drain."""
_batches = itertools.count()


class Journal:
    """What all clients of one consumer were given."""

    def __init__(self, wish: Wish, keyless: frozenset[str]) -> None:
        self.wish = wish
        self.keyless = keyless
        self.deliveries: list[Delivery] = []


class Client(threading.Thread):
    """One receiver, on its own connection, until `stopped`; a new connection after each loss."""

    def __init__(self, dsn: str, journal: Journal, seed: int, stopped: threading.Event) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.pid = 0
        self._dsn = dsn
        self._journal = journal
        self._random = random.Random(seed)
        self._stopped = stopped
        self._late: list[Delivery] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    self.pid = connection.info.backend_pid
                    while not self._stopped.is_set():
                        self._act(connection)
            except psycopg.OperationalError:
                self._stopped.wait(0.05)  # the server, or this session, was killed
            except BaseException as error:
                self.error = error
                return

    def _act(self, connection: psycopg.Connection[Any]) -> None:
        if self._random.random() < 0.25:
            self._in_transaction(connection)
            return
        given = receive(connection, self._journal, self._random.randint(1, 6), self._random.uniform(*SHORT))
        if not given:
            self._stopped.wait(0.01)
        for one in given:
            self._treat(connection, one)
        if self._late and self._random.random() < 0.3:
            settle(connection, self._journal, "ack", self._late.pop(self._random.randrange(len(self._late))))

    def _treat(self, connection: psycopg.Connection[Any], one: Delivery) -> None:
        chance = self._random.random()
        self._stopped.wait(self._random.choice((0, 0, 0.001, 0.02)))
        if chance < 0.6:
            settle(connection, self._journal, "ack", one)
        elif chance < 0.75:
            settle(connection, self._journal, "nack", one, self._random.uniform(0, 0.1))
        elif chance < 0.85:
            if settle(connection, self._journal, "extend", one, self._random.uniform(*SHORT)):
                settle(connection, self._journal, "ack", one)
        else:
            self._late.append(one)

    def _in_transaction(self, connection: psycopg.Connection[Any]) -> None:
        """Receive and acknowledge in one transaction; commit, give it up, or lose the line."""
        connection.execute("begin")
        given: list[Delivery] = []
        try:
            given = receive(connection, self._journal, self._random.randint(1, 4), self._random.uniform(*SHORT))
            acked = [one for one in given if self._random.random() < 0.7]
            for one in acked:
                settle(connection, self._journal, "ack", one)
            self._stopped.wait(self._random.choice((0, 0.01, 0.1, 0.3)))
            self._end(connection, given)
        except psycopg.OperationalError:
            unknown(given)
            raise

    def _end(self, connection: psycopg.Connection[Any], given: list[Delivery]) -> None:
        chance = self._random.random()
        now = time.monotonic()
        if chance < 0.6:
            for one in given:  # who waits for the rows gets them at some moment of the commit
                one.released(now if one.acked else one.until)
            connection.execute("commit")
            after = time.monotonic()
            for one in given:
                one.acked_after = after
            return
        undo(given, now)
        if chance < 0.8:
            connection.execute("rollback")
        else:
            hang_up(connection)
            raise psycopg.OperationalError("hung up")


def receive(connection: psycopg.Connection[Any], journal: Journal, upto: int, visibility: float) -> list[Delivery]:
    """Receive, and write it down."""
    before = time.monotonic()
    rows = connection.execute(RECEIVE, [journal.wish.name, upto, f"{visibility:.6f} s"]).fetchall()
    after = time.monotonic()
    batch = next(_batches)
    given = []
    for ack_id, seq, table, pk, action, record in rows:
        single = action in ("truncate", "message") or table in journal.keyless or not journal.wish.collapse
        key = (table, pk, seq if single else 0)
        given.append(Delivery(key, ack_id, seq, action, record, before, after, before + visibility, batch))
    journal.deliveries.extend(given)
    return given


def settle(
    connection: psycopg.Connection[Any], journal: Journal, what: str, one: Delivery, seconds: float | None = None
) -> bool:
    """ack, nack or extend one delivery, and write down what came of it; whether it was settled."""
    before = time.monotonic()
    ends = before + seconds if what == "extend" and seconds is not None else before
    values = [journal.wish.name, [one.ack_id], *([] if seconds is None else [f"{seconds:.6f} s"])]
    call = ", ".join(["%s", "%s::uuid[]", "%s::interval"][: len(values)])
    previous = one.until
    one.released(ends)
    if what == "ack":
        one.acked_before = before
    try:
        row = connection.execute(f"select pipeline.{what}({call})", values).fetchone()
    except psycopg.OperationalError:
        one.acked = None if what == "ack" else one.acked
        raise
    done = row == (1,)
    if what == "ack":
        one.acked, one.acked_after = done, time.monotonic()
    elif what == "extend" and done:
        # Extended after it had expired: another client may have received it in a transaction that was rolled back.
        one.until = ends if time.monotonic() < previous else previous
    elif not done:
        one.until = min(previous, before)
    return done


def acknowledge(connection: psycopg.Connection[Any], journal: Journal, given: list[Delivery]) -> None:
    """All of them at once, none of which is late."""
    before = time.monotonic()
    call = "select pipeline.ack(%s, %s::uuid[])"
    row = connection.execute(call, [journal.wish.name, [one.ack_id for one in given]]).fetchone()
    assert row == (len(given),), f"{row} of {len(given)} were settled"
    for one in given:
        one.released(before)
        one.acked, one.acked_before, one.acked_after = True, before, time.monotonic()


def undo(given: list[Delivery], now: float) -> None:
    """Their transaction is rolled back."""
    for one in given:
        one.released(now)
        one.acked, one.void = False, True


def unknown(given: list[Delivery]) -> None:
    """It is unknown whether their transaction was committed, and since when it is over."""
    for one in given:
        one.released(one.after)
        one.acked = None if one.acked or one.acked is None else False
        one.void = True


def drain(dsn: str, journal: Journal, is_left: Callable[[], bool], deadline: float) -> None:
    """Acknowledge all there is, until nothing is left."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while is_left() and time.monotonic() < deadline:
            connection.execute("select pipeline.retry_dead(%s)", [journal.wish.name])
            acknowledge(connection, journal, receive(connection, journal, 1000, LONG))


def kill(connection: psycopg.Connection[Any], client: Client) -> None:
    """End a client's session at the server, whatever it is doing."""
    with suppress(psycopg.Error):
        connection.execute("select pg_terminate_backend(%s)", [client.pid])
