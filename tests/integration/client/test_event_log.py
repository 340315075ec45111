"""`EventLog`: the log in a program of one's own, each event once even when the program is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pipeline.client import Event, EventLog, event_log
from pipeline.errors import ConsumerError, CursorExpiredError, DatabaseUnavailableError
from pipeline.log import table_setup
from pipeline.log.table import EventsTable
from tests.fixtures.postgres import unique
from tests.fixtures.server import ROOT, environment
from tests.fixtures.small_log import SOURCE, add_inserts, add_table, small_log
from tests.fixtures.streaming import announce
from tests.fixtures.waiting import eventually

KILLS = 3
END_CLIENTS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'pipeline client' and datname = current_database()
"""
FOLLOWER = """
import sys, psycopg
from pipeline.client import EventLog

with psycopg.connect(sys.argv[1], autocommit=True) as mine:
    position = mine.execute("select seq from position").fetchone()[0]
    for event in EventLog(sys.argv[2]).follow(after=position):
        with mine.transaction():
            mine.execute("insert into applied values (%s, %s)", [event.seq, event.record["id"]])
            mine.execute("update position set seq = %s", [event.seq])
"""
OTHERS = """
    select from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
NEVER = 600.0


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(database_dsn, 2_500) as connection:
        yield connection


@pytest.fixture
def reader(log: psycopg.Connection, database_dsn: str) -> EventLog:
    return EventLog(database_dsn)


def seqs(events: Iterator[Event] | list[Event]) -> list[int]:
    return [event.seq for event in events]


def test_everything_is_followed_in_order_and_then_what_comes(reader: EventLog, log: psycopg.Connection) -> None:
    found = reader.follow(after=0)
    assert [next(found).seq for _ in range(2_500)] == list(range(1, 2_501))
    last = add_inserts(log, 10)
    announce(log)
    assert [next(found).seq for _ in range(10)][-1] == last


def test_new_events_come_at_once_when_announced(
    reader: EventLog, log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "POLL_SECONDS", NEVER)
    arrived: list[int] = []
    thread = threading.Thread(target=lambda: arrived.append(next(reader.follow(after=2_500)).seq), daemon=True)
    thread.start()
    connected = "select 1 from pg_stat_activity where application_name = 'pipeline client'"
    eventually(lambda: log.execute(connected).fetchone())
    add_inserts(log, 1)
    announce(log)
    thread.join(60)
    assert arrived == [2_501]


def test_it_ends_after_waiting(reader: EventLog) -> None:
    assert seqs(reader.follow(after=2_495, wait=0)) == [2_496, 2_497, 2_498, 2_499, 2_500]
    assert seqs(reader.follow(after=2_500, wait=0.05)) == []


def test_tables_are_patterns(reader: EventLog, log: psycopg.Connection) -> None:
    add_table(log, "other_thing", 17000)
    last = add_inserts(log, 2, "other_thing", 17000)
    assert seqs(reader.follow(after=0, tables=["public.other_*"], wait=0)) == [last - 1, last]
    assert seqs(reader.read(0, tables=["public.otherXthing"])) == []
    assert len(reader.read(0, limit=700)) == 700


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("public.*", r"tables takes a list of patterns like public.orders or shop.\*, not the text 'public.\*'"),
        (["public.a", "orders"], r"tables takes patterns like .*: each with its schema, not 'orders'"),
    ],
)
def test_tables_that_are_no_list_of_patterns_are_refused(reader: EventLog, tables: list[str], said: str) -> None:
    with pytest.raises(ConsumerError, match=said):
        reader.read(0, tables=tables)
    with pytest.raises(ConsumerError, match=said):
        reader.follow(tables=tables)


def test_after_an_event_that_is_yet_to_come_nothing_is_read(reader: EventLog, log: psycopg.Connection) -> None:
    said = "seq 2501 is beyond the newest event, which is 2500: a reader there misses what comes next; give a seq of"
    with pytest.raises(ConsumerError, match=said):
        reader.read(2_501)
    with pytest.raises(ConsumerError, match=said):
        next(reader.follow(after=2_501))
    log.execute("delete from public.sequin_events")
    assert reader.read(2_500) == []
    log.execute("alter sequence public.sequin_events_seq_seq restart")
    log.execute("insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', 2401)")
    assert reader.read(2_400) == []
    with pytest.raises(ConsumerError, match="which is 2400"):
        reader.read(2_401)


def test_what_python_does_not_parse_keeps_nobody_from_what_follows(reader: EventLog, log: psycopg.Connection) -> None:
    digits, deep = "7" * 5_000, "[" * 1_500 + "]" * 1_500
    log.execute(f"""update public.sequin_events set record = '{{"n": {digits}}}' where seq = 1""")
    log.execute(f"""update public.sequin_events set record = '{{"d": {deep}}}' where seq = 2""")
    long, nested, after = reader.read(0, limit=3)
    assert str(long.record["n"]) == digits and long.unparsed == {}
    assert nested.unparsed == {"record": f'{{"d": {deep}}}'} and not nested.record
    assert after.seq == 3 and after.record


def test_an_event_has_python_values_and_exact_numbers(reader: EventLog, log: psycopg.Connection) -> None:
    log.execute(
        """update public.sequin_events set record = '{"n": 0.10, "big": 12345678901234567890.123, "i": 7}',
            changes = '{"n": 1e-7}', unchanged_columns = '{a,b}', committed_at = '2026-11-21 12:00+02' where seq = 1"""
    )
    event = reader.read(0, limit=1)[0]
    assert event.record == {"n": Decimal("0.10"), "big": Decimal("12345678901234567890.123"), "i": 7}
    assert str(event.record["n"]) == "0.10"
    assert event.changes == {"n": Decimal("1E-7")}
    assert (event.source_database_id, event.unchanged_columns) == (SOURCE, ["a", "b"])
    assert event.committed_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
    with pytest.raises(FrozenInstanceError):
        event.seq = 2  # type: ignore[misc]


def test_a_position_below_what_is_kept_is_refused_by_name(reader: EventLog, log: psycopg.Connection) -> None:
    log.execute("insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', 1001)")
    log.execute("delete from public.sequin_events where seq <= 1000")
    for attempt in (
        lambda: reader.read(999),
        lambda: next(reader.follow(after=0)),
        lambda: next(reader.follow(after=5)),
    ):
        with pytest.raises(CursorExpiredError, match=r"events up to seq 1000 .* are no longer kept") as expired:
            attempt()
        assert expired.value.floor == 1000
    assert reader.read(1000, limit=1)[0].seq == 1001
    assert next(reader.follow()).seq == 1001


def test_a_follower_is_told_when_the_log_is_cut_before_it(reader: EventLog, log: psycopg.Connection) -> None:
    follower = reader.follow(after=0)
    assert next(follower).seq == 1
    log.execute("truncate public.sequin_events")
    log.execute("insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', 2501)")
    with pytest.raises(CursorExpiredError):
        for _ in follower:
            continue


def test_a_lost_connection_is_made_again_and_nothing_is_lost_or_repeated(
    reader: EventLog, log: psycopg.Connection
) -> None:
    found = []
    for event in reader.follow(after=0, wait=3):
        found.append(event.seq)
        if event.seq % 900 == 0:
            log.execute(END_CLIENTS)
    assert found == list(range(1, 2_501))


def test_what_cannot_be_read_is_said_plainly(log: psycopg.Connection, database_dsn: str) -> None:
    with pytest.raises(ConsumerError, match=r"public\.none .* does not exist"):
        EventLog(database_dsn, "public.none").read(0)
    nowhere = make_conninfo(database_dsn, dbname="none", password="secret")
    with pytest.raises(DatabaseUnavailableError, match='database "none" does not exist') as refused:
        next(EventLog(nowhere).follow(after=0))
    assert "secret" not in str(refused.value)


def test_other_events_tables_are_read_by_their_name(log: psycopg.Connection, database_dsn: str) -> None:
    table = EventsTable("public", 'odd "name')
    table_setup.ensure(log, table)
    assert EventLog(database_dsn, str(table)).read(0) == []


def test_a_reader_without_rights_on_anything_else_follows(log: psycopg.Connection, database_dsn: str) -> None:
    name = unique("log_reader")
    log.execute(f"create role {name} login")
    log.execute(f"grant select on public.sequin_events to {name}")
    try:
        mine = make_conninfo(database_dsn, user=name)
        assert len(list(EventLog(mine).follow(after=0, wait=0))) == 2_500
    finally:
        log.execute(f"drop owned by {name}")
        log.execute(f"drop role {name}")


def test_a_follower_that_is_killed_again_and_again_applies_each_event_once(
    log: psycopg.Connection, source_dsn: str, database_dsn: str
) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as mine:
        mine.execute("create table applied (seq bigint, id bigint)")
        mine.execute("create table position (seq bigint)")
        mine.execute("insert into position values (0)")
        for kill in range(KILLS):
            add_inserts(log, 500)
            announce(log)
            goal = random.Random(kill).randint(1, 400) + _applied(mine)
            with _follower(source_dsn, database_dsn) as process:
                _wait_for(mine, goal)
                process.send_signal(signal.SIGKILL)
            eventually(lambda: mine.execute(OTHERS).rowcount == 0)  # what it has sent may still be applied
        total = add_inserts(log, 1)
        with _follower(source_dsn, database_dsn) as process:
            _wait_for(mine, total)
            process.kill()
        rows = mine.execute("select seq from applied order by ctid").fetchall()
    assert [seq for (seq,) in rows] == list(range(1, total + 1))


def _follower(source_dsn: str, database_dsn: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FOLLOWER, source_dsn, database_dsn], env=environment({}), cwd=ROOT)


def _wait_for(mine: psycopg.Connection, count: int) -> None:
    eventually(lambda: _applied(mine) >= count, timeout=60)


def _applied(mine: psycopg.Connection) -> int:
    row = mine.execute("select count(*) from applied").fetchone()
    return int(row[0]) if row else 0
