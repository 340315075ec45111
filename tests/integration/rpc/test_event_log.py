"""EventLog: whole transactions from where a client asks, and positions that only the one who reads may move."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import grpc
import psycopg
import pytest

from pipeline.log import table_setup
from pipeline.log.table import EventsTable
from pipeline.rpc.protos import event_log_pb2 as pb
from pipeline.rpc.tables import ReadableTable
from tests.fixtures.postgres import Cluster
from tests.fixtures.rpc import Rpc, consumer, position, refused, released, session_of
from tests.fixtures.small_log import add_inserts, add_table, small_log
from tests.fixtures.streaming import announce
from tests.fixtures.waiting import eventually

EVENTS = 1_500


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("events", cluster.template) as made:
        yield made


@pytest.fixture(scope="module")
def log(dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(dsn, EVENTS) as connection:
        yield connection


@pytest.fixture(scope="module")
def rpc(log: psycopg.Connection, dsn: str) -> Iterator[Rpc]:
    with Rpc(dsn) as running:
        yield running


def seqs(transactions: list[pb.Transaction]) -> list[int]:
    return [change.seq for each in transactions for change in each.changes]


def test_all_that_is_kept_in_whole_transactions(log: psycopg.Connection, rpc: Rpc) -> None:
    found = list(rpc.read())
    rows = log.execute(
        "select seq, commit_lsn, commit_idx, xid, source_table_schema, source_table_name, record_pk, record::text,"
        " committed_at, source_epoch from sequin_events order by seq"
    ).fetchall()
    assert seqs(found) == [row[0] for row in rows]
    assert all(each.complete for each in found)
    assert [len({change.commit_idx for change in each.changes}) == len(each.changes) for each in found]
    by_seq = {row[0]: row for row in rows}
    for each in found:
        last = by_seq[each.position.seq]
        assert (each.position.commit_lsn, each.position.source_epoch, each.xid) == (last[1], last[9], last[3])
        assert each.committed_at.ToDatetime(last[8].tzinfo) == last[8]
        for change in each.changes:
            row = by_seq[change.seq]
            said = (change.commit_idx, change.schema, change.table, change.record_pk, change.record)
            assert said == (row[2], row[4], row[5], row[6], row[7])
            assert change.action == pb.INSERT
            assert not change.HasField("changes")


def test_after_a_position_and_by_tables_and_actions(log: psycopg.Connection, rpc: Rpc) -> None:
    assert seqs(list(rpc.read(after=pb.Position(seq=EVENTS - 3)))) == list(range(EVENTS - 2, newest(log) + 1))
    assert seqs(list(rpc.read(after=pb.Position(seq=newest(log))))) == []
    assert list(rpc.read(tables=["public.nothing"])) == []
    assert list(rpc.read(actions=["delete"])) == []
    assert len(seqs(list(rpc.read(tables=["*.orders"], actions=["insert", "delete"])))) == newest(log)


def newest(log: psycopg.Connection) -> int:
    row = log.execute("select max(seq) from sequin_events").fetchone()
    assert row
    return int(row[0])


def add_ten(log: psycopg.Connection) -> None:
    add_inserts(log, 10)
    announce(log)


def test_following_gives_what_comes_later(log: psycopg.Connection, rpc: Rpc) -> None:
    head = newest(log)
    call = rpc.read(follow=True, after=pb.Position(seq=head))
    call.initial_metadata()
    threading.Timer(0.1, add_ten, [log]).start()
    assert seqs(list(islice(call, 1)))[0] == head + 1
    call.cancel()


def test_all_up_to_the_head_comes_though_the_log_goes_on(
    log: psycopg.Connection, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if everything after that seq had been written while the call was reading."""
    add_inserts(log, 1_000)  # beyond the last page that is read
    for head in (*range(1, 25), *range(81, 91), *range(337, 347), 500, 501, 1_000):  # where pages end, among others

        async def then(_table: ReadableTable, head: int = head) -> int:
            return head

        monkeypatch.setattr(ReadableTable, "head", then)
        found = list(rpc.read())
        assert all(each.complete for each in found)
        last = seqs(found)[-1]
        assert seqs(found) == list(range(1, last + 1))
        assert head <= last < newest(log)


def test_a_large_transaction_comes_in_parts_of_which_the_last_is_complete(log: psycopg.Connection, rpc: Rpc) -> None:
    head = newest(log)
    log.execute(
        "insert into sequin_events (source_database_id, commit_lsn, commit_idx, xid, source_table_oid,"
        " source_table_schema, source_table_name, record_pk, record, action, committed_at)"
        " select source_database_id, 900000000, n, 77, 1, 'public', 'orders', n::text,"
        " jsonb_build_object('id', n, 'customer', repeat('x', 5000)), 'update', now()"
        " from generate_series(0, 999) n, (select source_database_id from sequin_events limit 1) s"
    )
    found = list(rpc.read(after=pb.Position(seq=head)))
    assert [each.complete for each in found] == [False] * (len(found) - 1) + [True]
    assert len(found) > 4
    assert max(each.ByteSize() for each in found) < 1_000_000
    assert len(seqs(found)) == 1000
    assert {each.xid for each in found} == {77}


def test_a_consumer_goes_on_where_it_acknowledged(log: psycopg.Connection, rpc: Rpc) -> None:
    consumer(log, "reader")
    call = rpc.read(consumer="reader", follow=True)
    session = session_of(call)
    first, second = islice(call, 2)
    stored = rpc.ack("reader", first.position.seq, session)
    assert (stored.seq, stored.commit_lsn) == (first.position.seq, first.position.commit_lsn)
    inside = rpc.ack("reader", second.position.seq - 1, session)
    assert inside.seq == first.position.seq, "inside of a transaction"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "beyond the last event that was sent"):
        rpc.ack("reader", 10**12, session)
    call.cancel()
    released(log, "reader")
    again = rpc.read(consumer="reader", follow=True)
    assert next(again) == second
    again.cancel()
    released(log, "reader")


def test_one_that_does_not_follow_acknowledges_after_its_end(log: psycopg.Connection, rpc: Rpc) -> None:
    consumer(log, "batch", tables=["public.orders"])
    call = rpc.read(consumer="batch")
    session = session_of(call)
    last = list(call)[-1].position.seq
    assert rpc.ack("batch", last, session).seq == last
    released(log, "batch")
    add_inserts(log, 10)
    call = rpc.read(consumer="batch")
    seqs_of_call = seqs(list(call))
    assert seqs_of_call[0] == last + 1
    again = rpc.read(consumer="batch")
    assert seqs(list(again)) == seqs_of_call, "who reads it again does not wait for itself"
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "does not read consumer 'batch'"):
        rpc.ack("batch", last, session_of(call))
    assert rpc.ack("batch", seqs_of_call[-1], session_of(again)).seq == seqs_of_call[-1]


def test_what_is_no_message_is_said(rpc: Rpc) -> None:
    for path in ("Read", "Ack"):
        call: Any = rpc.channel.unary_unary(f"/pipeline.v1.EventLog/{path}")
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "is not of the type that this call takes"):
            call(b"\xff\xff garbage", timeout=20)


def test_one_reader_at_a_time_and_only_its_session_acknowledges(log: psycopg.Connection, rpc: Rpc) -> None:
    consumer(log, "mine")
    consumer(log, "other")
    call, other = rpc.read(consumer="mine", follow=True), rpc.read(consumer="other", follow=True)
    first = next(call)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "is read by ipv4:127.0.0.1"):
        next(rpc.read(consumer="mine", follow=True))
    for session in (session_of(other), "", "nonsense"):
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "does not read consumer 'mine'"):
            rpc.ack("mine", first.position.seq, session)
    assert position(log, "mine") == 0
    session = session_of(call)
    for each in (call, other):
        each.cancel()
        eventually(lambda: log.execute("select from pipeline.consumers where reader is not null").rowcount < 2)
    released(log, "mine")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "does not read"):
        rpc.ack("mine", first.position.seq, session)


def test_what_is_done_to_a_consumer_reaches_its_reader(log: psycopg.Connection, rpc: Rpc) -> None:
    consumer(log, "changing")
    call = rpc.read(consumer="changing", follow=True)
    next(call)
    log.execute("select pipeline.reset_consumer('changing', 'beginning')")
    with refused(grpc.StatusCode.UNAVAILABLE, "was reset"):
        list(call)
    call = rpc.read(consumer="changing", follow=True)
    next(call)
    log.execute("select pipeline.drop_consumer('changing')")
    with refused(grpc.StatusCode.NOT_FOUND, "was dropped"):
        list(call)


def test_a_consumers_filter_passes_over_what_it_leaves_out(log: psycopg.Connection, rpc: Rpc) -> None:
    consumer(log, "none", tables=["public.nothing"])
    assert list(rpc.read(consumer="none")) == []


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"consumer": "nobody"}, grpc.StatusCode.NOT_FOUND, "there is no consumer 'nobody'"),
        ({"consumer": "a queue"}, grpc.StatusCode.FAILED_PRECONDITION, "is of kind records"),
        ({"consumer": "x", "tables": ["a.b"]}, grpc.StatusCode.INVALID_ARGUMENT, "leave out tables"),
        ({"consumer": "x", "actions": ["read"]}, grpc.StatusCode.INVALID_ARGUMENT, "leave out actions"),
        ({"consumer": "x", "events_table": "a.b"}, grpc.StatusCode.INVALID_ARGUMENT, "leave out events_table"),
        ({"events_table": "a.b"}, grpc.StatusCode.NOT_FOUND, "there is no events table 'a.b'"),
        ({"tables": ["orders"]}, grpc.StatusCode.INVALID_ARGUMENT, "public.orders"),
        ({"tables": ["a.*"] * 1_001}, grpc.StatusCode.INVALID_ARGUMENT, "at most 1000 patterns with a *"),
        ({"tables": ["a.\0"]}, grpc.StatusCode.INVALID_ARGUMENT, "zero byte"),
        ({"actions": ["upsert"]}, grpc.StatusCode.INVALID_ARGUMENT, "there are: insert, update, delete"),
        ({"after": pb.Position(seq=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "must be 0 or more"),
        ({"after": pb.Position(seq=10**12)}, grpc.StatusCode.INVALID_ARGUMENT, "beyond the newest event"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_cannot_be_read_is_said(
    log: psycopg.Connection, rpc: Rpc, asked: dict[str, Any], status: grpc.StatusCode, words: str
) -> None:
    log.execute("delete from pipeline.consumers where name = 'a queue'")
    if asked.get("consumer") == "a queue":
        asked = {"consumer": "a.queue"}
        log.execute("select pipeline.create_consumer('a.queue')")
    with refused(status, words):
        list(rpc.read(**asked))


def test_what_retention_has_dropped_is_out_of_range(log: psycopg.Connection, rpc: Rpc) -> None:
    log.execute(
        "insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', 101)"
        " on conflict (events_table) do update set dropped_below = 101"
    )
    try:
        with refused(grpc.StatusCode.OUT_OF_RANGE, "continue with after.seq = 100"):
            list(rpc.read(after=pb.Position(seq=50)))
        assert seqs(list(rpc.read()))[0] == 101
    finally:
        log.execute("delete from pipeline.retention")


def test_another_events_table_is_followed_by_itself(log: psycopg.Connection, dsn: str) -> None:
    table_setup.ensure(log, EventsTable.parse("public.audit"))
    log.execute("insert into pipeline.events_tables (source_id, name) select id, 'public.audit' from pipeline.sources")
    log.execute("create table audit_small partition of audit for values from (1) to (1000)")
    routes = '[{"tables": ["public.audited"], "events_table": "public.audit"}]'
    with Rpc(dsn, routes=routes) as rpc:
        call = rpc.read(events_table="public.audit", follow=True)
        call.initial_metadata()
        log.execute(
            "insert into audit (source_database_id, commit_lsn, commit_idx, xid, source_table_oid,"
            " source_table_schema, source_table_name, record_pk, record, action, committed_at)"
            " select source_database_id, 5, 0, 1, 1, 'public', 'audited', '1', '{}', 'insert', now()"
            " from sequin_events limit 1"
        )
        log.execute("""select pg_notify('sequin_events', '{"table": "public.audit", "seq": 1}')""")
        found = next(call)
        assert [(change.table, change.seq) for change in found.changes] == [("audited", 1)]
        call.cancel()
        log.execute(
            "select pipeline.create_consumer('audits', 'public.audit'::regclass, kind => 'cursor', start => '0')"
        )
        of_consumer = rpc.read(consumer="audits", follow=True)
        found = next(of_consumer)
        assert [(change.table, change.seq) for change in found.changes] == [("audited", 1)]
        acked = rpc.ack("audits", 1, session_of(of_consumer))
        assert (acked.seq, acked.commit_lsn) == (1, 5)
        of_consumer.cancel()


def test_at_its_end_every_call_is_told(log: psycopg.Connection, dsn: str) -> None:
    consumer(log, "last")
    with Rpc(dsn) as rpc:
        calls = [rpc.read(follow=True, after=pb.Position(seq=newest(log))), rpc.read(follow=True, consumer="last")]
        for call in calls:
            call.initial_metadata()
        began = time.monotonic()
        rpc.stop()
        assert time.monotonic() - began < 20, "it waits for no client"
        for call in calls:
            with refused(grpc.StatusCode.UNAVAILABLE, "the server is stopping"):
                list(call)


def test_a_token_is_needed(log: psycopg.Connection, dsn: str) -> None:
    with Rpc(dsn, api_token="geheim") as rpc:
        for token in (None, "", "falsch"):
            with refused(grpc.StatusCode.UNAUTHENTICATED, "PIPELINE_API_TOKEN"):
                list(rpc.read(token=token))
        assert next(rpc.read(token="geheim")).changes[0].seq == 1


def test_a_table_that_is_added_to_the_log_is_read(log: psycopg.Connection, rpc: Rpc) -> None:
    add_table(log, "later", 16999)
    head = newest(log)
    add_inserts(log, 10, "later", 16999)
    assert {change.table for each in rpc.read(after=pb.Position(seq=head)) for change in each.changes} == {"later"}
