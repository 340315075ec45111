"""Each session of walstream's clients leaves a hold: a client that comes back within a minute lacks nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pipeline.consumers.cursor import claims
from pipeline.wires.walstream import hub
from tests.fixtures.postgres import Cluster
from tests.fixtures.rpc import Rpc, position, released
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import eventually
from tests.fixtures.walstream import Client
from tests.fixtures.walstream_log import head, stored, write

QUICKLY = 0.05


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made:
        yield made


@pytest.fixture(scope="module")
def module_log(dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(dsn, 20) as connection:
        yield connection


@pytest.fixture
def log(module_log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> psycopg.Connection:
    """With the position at the head and no hold. Holds are counted often."""
    monkeypatch.setattr(claims, "REVIEW_SECONDS", QUICKLY)
    monkeypatch.setattr(hub, "COUNT_SECONDS", QUICKLY)
    monkeypatch.setattr(hub, "LOOK_SECONDS", QUICKLY)
    module_log.execute("delete from pipeline.consumers where name = 'walstream'")
    module_log.execute("delete from pipeline.walstream_sessions")
    module_log.execute("select pipeline.create_consumer('walstream', 'cursor')")
    return module_log


@pytest.fixture
def rpc(log: psycopg.Connection, dsn: str) -> Iterator[Rpc]:
    with Rpc(dsn, wires="walstream") as running:
        yield running


def commits(log: psycopg.Connection, count: int) -> None:
    """Write transactions of one event."""
    for number in range(count):
        write(log, ("insert", {"id": number}))


def held(log: psycopg.Connection, *seqs: int) -> None:
    """Wait until there are holds at these seqs, and no others, and they are counted down."""
    query = "select acknowledged_seq from pipeline.walstream_sessions where hold_seconds is not null order by 1"
    eventually(lambda: [row[0] for row in log.execute(query)] == [*seqs])


def end_hold(log: psycopg.Connection, seq: int) -> None:
    """Let the time of the oldest hold at this seq be over."""
    log.execute(
        "update pipeline.walstream_sessions set hold_seconds = 0 where id = ("
        "select min(id) from pipeline.walstream_sessions where hold_seconds > 0 and acknowledged_seq = %s)",
        [seq],
    )
    eventually(lambda: log.execute("select from pipeline.walstream_sessions where hold_seconds <= 0").rowcount == 0)


def acknowledge(log: psycopg.Connection, client: Client, taken: int, acknowledged: int) -> None:
    """Let the session that began last take events up to the head, and acknowledge some; wait until that is stored."""
    for event in client.take(taken)[:acknowledged]:
        client.ack(event.lsn)
    query = "select sent_seq, unacknowledged from pipeline.walstream_sessions order by id desc limit 1"
    eventually(lambda: log.execute(query).fetchone() == (head(log), taken - acknowledged))


@contextmanager
def session(log: psycopg.Connection, rpc: Rpc) -> Iterator[Client]:
    """A client whose session has begun, and is the newest."""
    newest = "select coalesce(max(id), 0) from pipeline.walstream_sessions"
    before = log.execute(newest).fetchone()
    assert before
    with Client(rpc.address) as client:
        eventually(lambda: (log.execute(newest).fetchone() or before)[0] > before[0])
        yield client


def visit(log: psycopg.Connection, rpc: Rpc, taken: int, acknowledged: int) -> None:
    """A session that does the same, and ends."""
    with session(log, rpc) as client:
        acknowledge(log, client, taken, acknowledged)


def dead_session(log: psycopg.Connection, **values: object) -> None:
    """A session of a process that was killed."""
    names = {"claim": "gone:1", "server": "gone:1", "peer": "ipv4:gone", **values}
    columns = ", ".join(names)
    log.execute(
        f"insert into pipeline.walstream_sessions ({columns}) values ({', '.join(['%s'] * len(names))})".encode(),
        [*names.values()],
    )


def test_a_client_that_owed_nothing_gets_what_came_while_it_was_away(log: psycopg.Connection, rpc: Rpc) -> None:
    """Also over a restart: what the others acknowledge meanwhile does not move the position past it."""
    before = head(log)
    with session(log, rpc) as stays:
        commits(log, 2)
        visit(log, rpc, 2, 2)
        held(log, before + 2)
        commits(log, 3)
        stays.take(5, ack=True)
        own = "select acknowledged_seq from pipeline.walstream_sessions where ended_at is null"
        eventually(lambda: log.execute(own).fetchone() == (before + 5,))
        stored(log, before + 2)
        with session(log, rpc) as back:
            acknowledge(log, back, 3, 3)
    held(log, before + 2, before + 5, before + 5)
    assert position(log, "walstream") == before + 2


def test_all_sessions_of_a_server_that_stops_leave_holds(log: psycopg.Connection, dsn: str) -> None:
    before = head(log)
    commits(log, 5)
    with Rpc(dsn, wires="walstream") as first, session(log, first) as slow:
        acknowledge(log, slow, 5, 2)
        stored(log, before + 2)
        with session(log, first) as quick:
            acknowledge(log, quick, 3, 3)
            first.stop()
    left = "select acknowledged_seq from pipeline.walstream_sessions where ended_at is not null order by 1"
    assert log.execute(left).fetchall() == [(before + 2,), (before + 5,)]
    with Rpc(dsn, wires="walstream") as second:
        visit(log, second, 3, 3)
        with session(log, second) as back:
            assert len(back.take(3)) == 3, "though another one has acknowledged them"


def test_an_acknowledgement_during_an_earlier_hold_is_kept(log: psycopg.Connection, rpc: Rpc) -> None:
    before = head(log)
    commits(log, 10)
    visit(log, rpc, 10, 0)
    held(log, before)
    visit(log, rpc, 10, 10)
    held(log, before, before + 10)
    end_hold(log, before)
    stored(log, before + 10)
    end_hold(log, before + 10)
    held(log)
    with session(log, rpc) as client:
        assert client.nothing()


def test_after_the_last_hold_the_position_is_at_the_highest_of_its_time(log: psycopg.Connection, rpc: Rpc) -> None:
    before = head(log)
    commits(log, 10)
    with session(log, rpc) as slow:
        acknowledge(log, slow, 10, 4)
        stored(log, before + 4)
        visit(log, rpc, 6, 6)
        held(log, before + 10)
    held(log, before + 4, before + 10)
    end_hold(log, before + 10)
    assert position(log, "walstream") == before + 4, "the lowest that remains"
    end_hold(log, before + 4)
    stored(log, before + 10)


def test_what_was_acknowledged_before_a_hold_began_does_not_count(log: psycopg.Connection, rpc: Rpc) -> None:
    before = head(log)
    commits(log, 10)
    with session(log, rpc) as slow:
        acknowledge(log, slow, 10, 4)
        visit(log, rpc, 6, 6)
        held(log, before + 10)
        end_hold(log, before + 10)
    held(log, before + 4)
    end_hold(log, before + 4)
    held(log)
    assert position(log, "walstream") == before + 4
    with session(log, rpc) as back:
        assert len(back.take(6)) == 6


def test_a_start_goes_on_with_the_seconds_that_remain(log: psycopg.Connection, dsn: str) -> None:
    """No client connects. The hour in which no server was there does not count."""
    commits(log, 4)
    end = head(log)
    later = "clock_timestamp() - interval '1 hour'"
    for hold, highest in ((30.0, end - 2), (20.0, end)):
        dead_session(log, acknowledged_seq=end - 4, hold_seconds=hold, highest_seq=highest)
    log.execute(f"update pipeline.walstream_sessions set ended_at = {later}, counted_at = {later}".encode())
    dead_session(log, acknowledged_seq=end - 3)
    with Rpc(dsn, wires="walstream"):
        held(log, end - 4, end - 4, end - 3)
        remaining = [row[0] for row in log.execute("select hold_seconds from pipeline.walstream_sessions order by id")]
        assert [15 < remaining[0] < 30, 10 < remaining[1] < 20, remaining[2] > 30] == [True] * 3, remaining
        end_hold(log, end - 3)
        log.execute("update pipeline.walstream_sessions set hold_seconds = hold_seconds - 30")
        stored(log, end - 2)


def test_sessions_of_a_version_without_holds_keep_the_position(log: psycopg.Connection, rpc: Rpc) -> None:
    before = head(log)
    dead_session(log)
    with session(log, rpc) as client:
        commits(log, 5)
        client.take(5, ack=True)
        held(log, before)
        assert position(log, "walstream") == before
        end_hold(log, before)
        stored(log, before + 5)


@pytest.mark.parametrize("end", ["reset_consumer('walstream', 'now')", "drop_consumer('walstream')"])
def test_a_reset_or_deleted_consumer_has_no_holds(log: psycopg.Connection, rpc: Rpc, end: str) -> None:
    before = head(log)
    commits(log, 5)
    visit(log, rpc, 5, 0)
    held(log, before)
    with session(log, rpc) as client:
        client.take(5)
        log.execute(f"select pipeline.{end}".encode())
        client.ended()
    held(log)
    with session(log, rpc) as client:
        eventually(lambda: position(log, "walstream") == before + 5, errors=(TypeError,))
        commits(log, 1)
        assert client.next().values == {"id": 0}, "from the head on"
        assert position(log, "walstream") == before + 5


def test_a_hold_that_ends_is_reported_with_what_was_not_acknowledged(
    log: psycopg.Connection, rpc: Rpc, caplog: pytest.LogCaptureFixture
) -> None:
    before = head(log)
    commits(log, 5)
    visit(log, rpc, 5, 3)
    visit(log, rpc, 2, 2)
    held(log, before + 3, before + 5)
    with caplog.at_level(logging.WARNING):
        for seq in (before + 5, before + 3):
            end_hold(log, seq)
        eventually(lambda: "walstream" in caplog.text)
    (said,) = [record.getMessage() for record in caplog.records if "come back" in record.getMessage()]
    assert said.endswith("2 events that it had not acknowledged may not come again")


def test_another_process_serves_the_wire_while_there_are_holds(log: psycopg.Connection, dsn: str, rpc: Rpc) -> None:
    """Both count the same holds, and these last no shorter for that."""
    before = head(log)
    commits(log, 3)
    visit(log, rpc, 3, 1)
    released(log, "walstream")
    with Rpc(dsn, wires="walstream") as other:
        visit(log, other, 2, 0)
    held(log, before + 1, before + 1)
