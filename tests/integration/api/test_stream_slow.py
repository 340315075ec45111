"""A client that reads slowly is held back, not dropped, and costs the others nothing; one that is gone is noticed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from pipeline.api import websocket_protocol
from pipeline.consumers.cursor import feed
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.streaming import Streaming, announce

ROWS = 500
LARGE = "update public.sequin_events set record = jsonb_build_object('text', repeat(md5(seq::text), 600))"


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(database_dsn, ROWS) as connection:
        connection.execute(LARGE)
        yield connection


@pytest.fixture
def api(log: psycopg.Connection, database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Streaming]:
    monkeypatch.setitem(websocket_protocol.SETTINGS, "ws_ping_interval", 0.05)
    monkeypatch.setattr(feed, "RING_BYTES", 1_000_000)
    with Streaming(database_dsn) as running:
        yield running


def test_a_client_that_stops_reading_gets_everything_later_in_order(api: Streaming, log: psycopg.Connection) -> None:
    api.create("slow")
    api.create("quick")
    with api.stream("slow", max_queue=1) as slow, api.stream("quick") as quick:
        quick.read_to(ROWS)
        until = time.monotonic() + 1  # twenty pings
        while time.monotonic() < until:
            last = add_inserts(log, 200)
            log.execute(f"{LARGE} where seq > {last - 200}")
            announce(log)
            quick.read_to(last)
        slow.read_to(last)
    assert slow.seqs == quick.seqs == list(range(1, last + 1))


def test_events_larger_than_a_frame_come_one_by_one(api: Streaming, log: psycopg.Connection) -> None:
    log.execute(
        "update public.sequin_events set record = jsonb_build_object('text', repeat('x', 3000000)) where seq % 100 = 0"
    )
    api.create("c")
    with api.stream("c") as client:
        client.read_to(ROWS)
        assert client.seqs == list(range(1, ROWS + 1))
        assert all(len(frame["data"]) < 100 for frame in client.frames[1:])
