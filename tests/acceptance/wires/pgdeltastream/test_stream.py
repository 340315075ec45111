"""The stream of a session: frames as wal2json writes them, acknowledgements that move the slot, and who may read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.delta_stream import REFUSED_FOR_NOW, Frame, Line, confirmed, reaches, refusal, values
from tests.fixtures.waiting import eventually
from tests.fixtures.wire_place import SECRET, Place

pytestmark = pytest.mark.xdist_group("pgdeltastream")


@pytest.fixture(scope="module")
def table(place: Place) -> str:
    return place.table("id serial primary key, name text")


@pytest.fixture(scope="module")
def keyless(place: Place) -> str:
    return place.table("note text")


@pytest.fixture(scope="module")
def doomed(place: Place) -> str:
    """To be altered, emptied and dropped."""
    return place.table("id int primary key", "values (1)")


@pytest.fixture
def slot(place: Place, table: str, keyless: str, doomed: str) -> str:
    """Of a session from after these tables were made."""
    return place.client.init()


@pytest.fixture
def line(place: Place, slot: str) -> Iterator[Line]:
    with place.client.stream(slot) as line:
        yield line


def insert(place: Place, table: str, name: str = "x") -> None:
    place.source.execute(f"insert into {table} (name) values (%s)".encode(), [name])


def test_frames_are_as_wal2json_writes_them(place: Place, line: Line, table: str) -> None:
    place.source.execute(f"alter sequence {table}_id_seq restart 500".encode())
    insert(place, table, "name4")
    place.source.execute(f"update {table} set name = 'five' where id = 500".encode())
    place.source.execute(f"delete from {table} where id = 500".encode())
    row = (
        f'"schema":"public","table":"{table}","columnnames":["id","name"],"columntypes":["integer","text"],'
        '"columnvalues":[500,'
    )
    old = '"oldkeys":{"keynames":["id"],"keytypes":["integer"],"keyvalues":[500]}'
    expected = [
        f'{{"kind":"insert",{row}"name4"]}}',
        f'{{"kind":"update",{row}"five"],{old}}}',
        f'{{"kind":"delete","schema":"public","table":"{table}",{old}}}',
    ]
    for change in expected:
        text = line.text()
        assert text == f'{{"nextlsn":"{json.loads(text)["nextlsn"]}","change":[{change}]}}'


def test_a_transaction_is_one_frame_and_what_is_rolled_back_is_in_none(place: Place, line: Line, table: str) -> None:
    with place.source.transaction(), place.source.cursor() as cursor:
        cursor.execute(f"insert into {table} (name) values ('a'), ('b')".encode())
        with place.source.transaction(force_rollback=True):
            cursor.execute(f"insert into {table} (name) values ('undone')".encode())
        cursor.execute(f"delete from {table} where name = 'a'".encode())
    with place.source.transaction(force_rollback=True):
        insert(place, table, "never")
    insert(place, table, "next")
    assert [change["kind"] for change in line.changes()] == ["insert", "insert", "delete"]
    assert [values(change)["name"] for change in line.changes()] == ["next"]


def test_an_acknowledgement_moves_the_slot_and_nothing_comes_twice(place: Place, slot: str, table: str) -> None:
    with place.client.stream(slot) as line:
        insert(place, table, "one")
        insert(place, table, "two")
        first, second = line.next(), line.next()
        line.ack(first["nextlsn"])
        reaches(place.source, slot, first["nextlsn"])
        line.drop()
    with place.client.again(slot) as line:
        assert line.next() == second
        line.ack(second["nextlsn"])
        reaches(place.source, slot, second["nextlsn"])
    with place.client.again(slot) as line:
        assert line.is_quiet()
        insert(place, table, "three")
        assert [values(change)["name"] for change in line.changes()] == ["three"]


def test_the_slot_follows_an_acknowledgement_within_a_second(place: Place, slot: str, table: str) -> None:
    """Twice running: on a busy machine some are late, and of those that wait for the next status nearly all."""
    times: list[float] = []
    with place.client.stream(slot) as line:
        while not times or max(times[-2:]) > 1 or len(times) < 2:
            assert len(times) < 20, times
            insert(place, table)
            lsn = line.next()["nextlsn"]
            began = time.monotonic()
            line.ack(lsn)
            reaches(place.source, slot, lsn)
            times.append(time.monotonic() - began)


def test_what_is_not_acknowledged_comes_again_as_it_was(place: Place, slot: str, table: str) -> None:
    insert(place, table, "again")
    with place.client.stream(slot) as line:
        before = line.text()
        line.drop()
    for _ in range(2):
        with place.client.again(slot) as line:
            assert line.text() == before


def test_meaningless_acknowledgements_move_nothing(place: Place, line: Line, slot: str, table: str) -> None:
    insert(place, table)
    insert(place, table)
    first, second = line.next(), line.next()
    line.ack(second["nextlsn"])
    reaches(place.source, slot, second["nextlsn"])
    high = f"{int(second['nextlsn'].split('/')[0], 16) + 1:X}/0"
    for lsn in (
        *(first["nextlsn"], "0/0", high, "FFFFFFFF/FFFFFFFF", "garbage", "", "/", "0/", "0/G", "-1/5", "0/1/2"),
        *("12345678901234567890", "0/12345678901234567890", "99999999999999999999/0", SECRET, "\u0660/1", "0/ 1"),
    ):
        line.ack(lsn)
    for frame in ({}, {"LSN": high}, {"ack": 5}):
        line.line.send(json.dumps(frame))
    insert(place, table, "alive")
    after = line.next()
    assert [values(change)["name"] for change in after["change"]] == ["alive"]
    assert confirmed(place.source, slot) == second["nextlsn"]
    line.line.send(json.dumps({"lsn": after["nextlsn"], "more": [1]}))
    reaches(place.source, slot, after["nextlsn"])


def test_an_lsn_within_a_transaction_confirms_the_one_before(place: Place, line: Line, slot: str, table: str) -> None:
    insert(place, table)
    insert(place, table)
    first, second = line.next(), line.next()
    high, low = second["nextlsn"].split("/")
    line.ack(f"{high}/{int(low, 16) - 1:X}")
    reaches(place.source, slot, first["nextlsn"])


def test_only_the_last_frame_of_a_large_transaction_confirms_it(place: Place, slot: str, table: str) -> None:
    with place.client.stream(slot) as line:
        place.source.execute(
            f"insert into {table} (name) select repeat('x', 1000000) from generate_series(1, 20)".encode()
        )
        first = line.next()
        assert 0 < len(first["change"]) < 20
        assert first["nextlsn"] == confirmed(place.source, slot), "the slot's position, before anything is acknowledged"
        line.ack(first["nextlsn"])
        line.drop()
    with place.client.again(slot) as line:
        frames = _whole(line, 20)
        assert [frame["nextlsn"] == first["nextlsn"] for frame in frames] == [True] * (len(frames) - 1) + [False]
        line.ack(frames[-1]["nextlsn"])
        reaches(place.source, slot, frames[-1]["nextlsn"])
        place.source.execute(
            f"insert into {table} (name) select repeat('y', 1000000) from generate_series(1, 20)".encode()
        )
        second = line.next()
        assert second["nextlsn"] == frames[-1]["nextlsn"], "of the transaction before"
        _whole(line, 20 - len(second["change"]))


def _whole(line: Line, changes: int) -> list[Frame]:
    """Frames with this many changes together."""
    found: list[Frame] = []
    while sum(len(frame["change"]) for frame in found) < changes:
        found.append(line.next())
    assert sum(len(frame["change"]) for frame in found) == changes
    return found


def test_a_position_is_stored_before_the_source_learns_of_it(place: Place, line: Line, slot: str, table: str) -> None:
    before = confirmed(place.source, slot)
    insert(place, table)
    frame = line.next()
    with psycopg.connect(place.log.info.dsn) as holder:
        holder.execute("select from pipeline.sessions where slot = %s for update", [slot])
        line.ack(frame["nextlsn"])
        time.sleep(0.3)
        assert confirmed(place.source, slot) == before
        holder.rollback()
    reaches(place.source, slot, frame["nextlsn"])
    stored = place.log.execute(
        "select position = %s::pg_lsn - '0/0' from pipeline.sessions where slot = %s and state = 'ready'",
        [frame["nextlsn"], slot],
    ).fetchone()
    assert stored == (True,)


@pytest.mark.parametrize(
    "sent",
    ["no json", '{"lsn":', '{"lsn":5}', '{"lsn":null}', "[]", '"0/1"', "5", b'{"lsn":"0/1"}', b"\xff\xfe", "x" * 2**20],
    ids=lambda sent: repr(sent[:12]),
)
def test_a_frame_that_is_no_acknowledgement_ends_only_the_stream(
    place: Place, odd_session: str, table: str, sent: str | bytes
) -> None:
    def told() -> tuple[int, str]:
        with place.client.again(odd_session) as line:
            line.line.send(sent)
            found = line.closed()
        assert found[0] not in REFUSED_FOR_NOW, "the one before had it still"
        return found

    code, reason = eventually(told)
    assert code == (1009 if len(sent) > 2**16 else 1008), (code, reason)
    assert place.server.get("/healthz").status_code == 200


@pytest.fixture(scope="module")
def odd_session(place: Place) -> str:
    return place.client.init()


def test_half_a_frame_is_waited_for_and_harms_nobody(place: Place, slot: str, line: Line, table: str) -> None:
    line.line.socket.sendall(b"\x81\xfe\x01")  # the head of a text frame, without its end
    insert(place, table, "meanwhile")
    assert [values(change)["name"] for change in line.changes()] == ["meanwhile"]
    line.drop()
    with place.client.again(slot) as again:
        assert [values(change)["name"] for change in again.changes()] == ["meanwhile"]


def test_a_session_that_is_not_there_is_refused_in_time(place: Place) -> None:
    for name in ("delta_face100", "no_such_slot", place.slot, "x" * 200, "%00", "%27%3B"):
        started = time.monotonic()
        code, reason = refusal(place.client, name)
        assert code == 4404, (name, code, reason)
        assert reason
        assert time.monotonic() - started < 5


def test_requests_that_are_no_stream_are_told_so(place: Place, slot: str) -> None:
    http = place.client.http
    missing = http.get("/v1/lr/stream")
    assert (missing.status_code, missing.text) == (400, '{"error":"no slotName provided"}')
    plain = http.get("/v1/lr/stream", params={"slotName": slot})
    assert plain.status_code == 400
    assert plain.text == 'Bad Request\n{"error":"could not upgrade to websocket connection"}'
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["sec-websocket-version"] == "13"


def test_truncated_tables_are_named_and_ddl_says_nothing(
    place: Place, line: Line, slot: str, table: str, doomed: str
) -> None:
    place.source.execute(f"alter table {doomed} add note text".encode())
    place.source.execute(f"truncate {doomed}".encode())
    frame = line.next()
    assert frame == {**frame, "change": [], "truncated": [{"schema": "public", "table": doomed}]}
    assert list(frame) == ["nextlsn", "change", "truncated"]
    place.source.execute(f"drop table {doomed}".encode())
    insert(place, table, "after")
    after = line.next()
    assert [values(change)["name"] for change in after["change"]] == ["after"]
    line.ack(frame["nextlsn"])
    reaches(place.source, slot, frame["nextlsn"])


def test_a_table_without_a_key_is_updated_and_nothing_dies(place: Place, line: Line, table: str, keyless: str) -> None:
    place.source.execute(f"insert into {keyless} values ('a')".encode())
    assert values(line.changes()[0]) == {"note": "a"}
    place.source.execute(f"update {keyless} set note = 'b'".encode())
    place.source.execute(f"delete from {keyless}".encode())
    insert(place, table, "alive")
    assert values(line.changes()[0])["name"] == "alive"


def test_a_ping_is_answered(line: Line) -> None:
    assert line.line.ping().wait(5)


@pytest.mark.long
@pytest.mark.timeout(150)
def test_a_minute_of_silence_ends_nothing(place: Place, table: str) -> None:
    named = psycopg.sql.Identifier(place.source.info.dbname)
    place.source.execute(psycopg.sql.SQL("alter database {} set wal_sender_timeout = '5s'").format(named))
    try:
        slot = place.client.init()
        with place.client.stream(slot) as line:
            insert(place, table, "first")
            line.next()
            pid = "select active_pid from pg_replication_slots where slot_name = %s"
            before = place.source.execute(pid, [slot]).fetchone()
            time.sleep(60)
            assert line.line.ping().wait(5)
            assert place.source.execute(pid, [slot]).fetchone() == before != (None,)
            insert(place, table, "still there")
            assert [values(change)["name"] for change in line.changes()] == ["still there"]
            print(f"60 s idle, wal_sender_timeout 5 s: walsender {before} all the time")
    finally:
        place.source.execute(psycopg.sql.SQL("alter database {} reset wal_sender_timeout").format(named))
