"""A cursor's stream goes on where it was acknowledged, has one reader, and follows what is done to the consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from websockets.exceptions import ConnectionClosed

from pipeline.consumers.cursor import reading
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.small_log import add_inserts, add_table, small_log
from tests.fixtures.streaming import Stream, Streaming, announce
from tests.fixtures.waiting import eventually

EVENTS = 1_500


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    with small_log(database_dsn, EVENTS) as connection:
        yield connection


@pytest.fixture
def api(log: psycopg.Connection, database_dsn: str) -> Iterator[Streaming]:
    with Streaming(database_dsn) as running:
        yield running


def closed(client: Stream) -> tuple[int, str]:
    """The close code, and the sentence of the error frame before it."""
    sentence = ""
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            sentence = client.next().get("title", sentence)
    assert ended.value.rcvd is not None
    return ended.value.rcvd.code, sentence


def test_a_stream_begins_at_the_position_and_goes_on_with_what_comes(api: Streaming, log: psycopg.Connection) -> None:
    api.create("c")
    with api.stream("c") as client:
        assert client.next() == {"type": "ready", "position": 0}
        client.read_to(EVENTS)
        for _ in range(5):
            last = add_inserts(log, 7)
            announce(log)
            client.read_to(last)
    assert client.seqs == list(range(1, last + 1))


def test_an_event_is_the_row_as_postgres_prints_it(api: Streaming, log: psycopg.Connection) -> None:
    log.execute('update public.sequin_events set record = \'{"n": 1.10, "big": 123456789012345678901234567890.50}\'')
    api.create("c")
    log.execute("set timezone = 'UTC'")
    expected = log.execute("select row_to_json(e)::text from public.sequin_events e order by seq limit 500").fetchall()
    with api.stream("c") as client:
        client.next()
        text = client.line.recv(60)
    assert text == f'{{"type":"events","data":[{",".join(row[0] for row in expected)}]}}'


def test_a_stream_repeats_no_acknowledged_event_and_omits_no_other(api: Streaming) -> None:
    api.create("c")
    position = 0
    while position < EVENTS:
        with api.again("c", "?max=100") as client:
            assert client.frames[0]["position"] == position
            client.read_to(min(position + 150, EVENTS))
            assert client.seqs == list(range(position + 1, client.seqs[-1] + 1))
            position = client.ack(client.seqs[-1] - 7 if client.seqs[-1] < EVENTS else EVENTS)
    assert api.consumer("c")["position"] == EVENTS


def test_an_acknowledgement_before_hanging_up_counts(api: Streaming) -> None:
    api.create("c")
    for seq in range(1, 300, 17):
        with api.again("c", "?max=300") as client:
            client.read_to(300)
            client.line.send(json.dumps({"ack": seq}))
        with api.again("c") as client:
            assert client.frames[0]["position"] == seq


def test_a_second_reader_is_refused_and_told_who_has_it(api: Streaming) -> None:
    api.create("c")
    with api.stream("c") as first:
        first.next()
        with api.stream("c") as second:
            code, sentence = closed(second)
        assert code == 4409
        host, port = first.line.local_address[:2]
        assert f"read by {host}:{port} through server test:1 since 2" in sentence
        assert api.consumer("c")["reader"] in sentence
    eventually(lambda: api.consumer("c")["reader"] is None)
    with api.stream("c") as third:
        assert third.next()["type"] == "ready"


def test_unknown_consumers_and_those_of_records_have_no_stream(api: Streaming) -> None:
    api.create("work", start="now", kind="records")
    for name, code, said in (("none", 4404, "no consumer 'none'"), ("work", 1008, "of kind records")):
        with api.stream(name) as client:
            ended, sentence = closed(client)
        assert ended == code
        assert said in sentence


@pytest.mark.parametrize(
    ("frame", "code"),
    [("{}", 1008), ("no", 1008), (b"{}", 1003), ('{"ack": 9999999}', 1008), ("x" * 70_000, 1009)],
)
def test_a_bad_frame_ends_the_stream_with_a_sentence(api: Streaming, frame: str | bytes, code: int) -> None:
    api.create("c")
    with api.stream("c") as client:
        client.next()
        client.line.send(frame)
        ended, sentence = closed(client)
    assert ended == code
    assert sentence or code == 1009


def test_a_filter_is_kept_both_behind_and_at_the_head(api: Streaming, log: psycopg.Connection) -> None:
    add_table(log, "other_thing", 17000)
    add_inserts(log, 3, "other_thing", 17000)
    log.execute("update public.sequin_events set action = 'read' where seq in (%s, 1)", [EVENTS + 2])
    api.create("c", tables=["public.other*"], actions=["insert", "read"])
    with api.stream("c") as client:
        client.read_to(EVENTS + 3)
        add_inserts(log, 5)
        last = add_inserts(log, 2, "other_thing", 17000)
        log.execute("update public.sequin_events set action = 'read' where seq = %s", [last])
        announce(log)
        client.read_to(last)
    assert client.seqs == [EVENTS + 1, EVENTS + 2, EVENTS + 3, last - 1, last]


def test_who_has_acknowledged_everything_passes_over_what_is_not_for_him(
    api: Streaming, log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "IDLE_SECONDS", 0.1)
    api.create("c", tables=["public.none"])
    with api.stream("c") as client:
        client.next()
        eventually(lambda: api.consumer("c")["position"] == EVENTS)
        last = add_inserts(log, 10)
        announce(log)
        eventually(lambda: api.consumer("c")["position"] == last)
    assert client.seqs == []


def test_who_has_not_acknowledged_stays(
    api: Streaming, log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "IDLE_SECONDS", 0.05)
    add_table(log, "other", 17000)
    add_inserts(log, 1, "other", 17000)
    api.create("c", tables=["public.other"])
    with api.stream("c") as client:
        client.read_to(EVENTS + 1)
        last = add_inserts(log, 10)
        announce(log)
        eventually(lambda: api.consumer("c")["lag"] >= 10)
        assert api.consumer("c")["position"] <= EVENTS
        assert client.ack(EVENTS + 1) == EVENTS + 1
        eventually(lambda: api.consumer("c")["position"] == last)


def test_a_paused_consumer_is_handed_nothing_until_it_is_resumed(api: Streaming, log: psycopg.Connection) -> None:
    api.create("c", start="now")
    api.tell("c/pause")
    with api.stream("c") as client:
        client.next()
        last = add_inserts(log, 10)
        announce(log)
        with pytest.raises(TimeoutError):
            client.next(timeout=0.5)
        api.tell("c/resume")
        client.read_to(last)
    assert len(client.seqs) == 10


@pytest.mark.parametrize(("act", "code"), [("reset", 1012), ("delete", 4404)])
def test_a_stream_ends_when_its_consumer_is_reset_or_deleted(
    api: Streaming, log: psycopg.Connection, act: str, code: int
):
    api.create("c")
    with api.stream("c") as client:
        client.read_to(500)
        client.ack(500)
        if act == "reset":
            api.tell("c/reset", start="beginning")
        else:
            log.execute("select pipeline.drop_consumer('c')")
        assert closed(client)[0] == code


def test_only_the_last_part_of_a_large_transaction_is_marked_complete(api: Streaming, log: psycopg.Connection) -> None:
    log.execute("update public.sequin_events set commit_lsn = 5000, xid = 1 where seq > 10")
    api.create("c", start="10")
    with api.stream("c", "?mode=transactions&max=300") as client:
        client.read_to(EVENTS)
        assert [frame["complete"] for frame in client.frames[1:]] == [False, False, False, False, True]
        assert client.seqs == list(range(11, EVENTS + 1))
        client.line.send(json.dumps({"ack": 700}))
        assert client.next() == {"type": "acknowledged", "position": 10}
        assert client.ack(EVENTS) == EVENTS


def test_the_end_of_the_server_is_told_and_waits_for_nobody(api: Streaming) -> None:
    api.create("c")
    api.create("slow")
    with api.stream("c") as client, api.stream("slow", close_timeout=0.1):
        client.read_to(EVENTS)
        api.stop()
        assert closed(client)[0] == 1012


def test_a_stream_of_another_events_table_is_fed_by_that_one(api: Streaming, log: psycopg.Connection) -> None:
    route(log)
    api.create("here", start="1490")
    api.create("there", events_table=str(AUDIT))
    with api.stream("there") as there, api.stream("here") as here:
        there.read_to(30)
        assert {event["source_table_name"] for frame in there.frames for event in frame.get("data", [])} == {"audits"}
        here.read_to(EVENTS)
        route(log, first=31, last=33)
        log.execute("select pg_notify('sequin_events', %s)", [json.dumps({"table": str(AUDIT), "seq": 33})])
        there.read_to(33)
        assert there.ack(33) == 33
    assert there.seqs == list(range(1, 34))
    log.execute(f'drop table public."{AUDIT.name}"')
    with api.stream("there") as there:
        assert closed(there) == (
            4410,
            f"consumer there reads {AUDIT}, which no longer exists; restore the table, or delete the consumer: "
            "`pipeline consumers delete there`",
        )
