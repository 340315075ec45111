"""PG Delta Stream's paths without a source: every refusal has their form, in time, and nothing waits at the end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from pipeline.api import background
from pipeline.wires.pgdeltastream import streams
from tests.fixtures.api import Api, answering
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

JSON, TEXT = "application/json; charset=utf-8", "text/plain; charset=utf-8"
NO_SESSION = '{"error":"snapshot not available: call /init to initialize a new slot and snapshot"}'
NO_INIT = '{"error":"unable to init session"}'
NO_ROWS = '{"error":"unable to get snapshot data"}'
NO_SLOT = '{"error":"no slotName provided"}'
PAGE = {"table": "t", "offset": 0, "limit": 1}
TOKEN = {"authorization": "Bearer secret"}
IN_TIME = 20
"""Seconds: a quarter of that, where the machine has one."""
A_SESSION = """
    with source as (
        insert into pipeline.sources (id, system_identifier, database_name, slot)
        values (gen_random_uuid(), '1', 'x', 'pipeline')
        returning id
    )
    insert into pipeline.sessions (slot, wire, source_id, epoch, system_identifier, made_after, position, state, reason)
    select slot, 'pgdeltastream', id, 1, '1', 1, 1, state, reason
    from source, (values ('delta_few1', 'ended', 'it was idle'), ('delta_few2', 'ready', null)) s(slot, state, reason)
"""


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("api", cluster.template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def api(dsn: str) -> Iterator[Api]:
    with answering(dsn, wires=("pgdeltastream",)) as api:
        yield api


@pytest.fixture(scope="module")
def guarded(dsn: str) -> Iterator[Api]:
    with answering(dsn, wires=("pgdeltastream",), api_token="secret") as api:
        yield api


@pytest.fixture(scope="module")
def opened(dsn: str) -> Iterator[Api]:
    wires = ("pgdeltastream",)
    with answering(dsn, wires=wires, open_wires=wires, api_token="secret") as api:
        yield api


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing, as a frozen one does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"host=127.0.0.1 port={listener.getsockname()[1]} dbname=x user=x sslmode=disable gssencmode=disable"


def seen(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.headers["content-type"], answer.text


def shaken(api: Api, query: str = "?slotName=x", **options: Any) -> tuple[int, str, str]:
    """What a refused handshake is answered with."""
    with pytest.raises(InvalidStatus) as raised:
        connect(f"ws://127.0.0.1:{api.config.http_port}/v1/lr/stream{query}", proxy=None, **options)
    answer = raised.value.response
    return answer.status_code, answer.headers["content-type"], bytes(answer.body or b"").decode()


def refusal(api: Api, slot: str, **options: Any) -> tuple[int, str]:
    """The close code and reason of a stream, and that they come in time."""
    began = time.monotonic()
    url = f"ws://127.0.0.1:{api.config.http_port}/v1/lr/stream?slotName={slot}"
    with connect(url, proxy=None, **options) as line, pytest.raises(ConnectionClosed) as ended:
        line.recv(60)
    assert ended.value.rcvd is not None
    assert time.monotonic() - began < IN_TIME
    return ended.value.rcvd.code, ended.value.rcvd.reason


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/init"),
        ("HEAD", "/v1/init"),
        ("GET", "/v1/snapshot/data"),
        ("PUT", "/v1/snapshot/data"),
        ("POST", "/v1/lr/stream"),
    ],
)
def test_another_method_is_no_page(api: Api, method: str, path: str) -> None:
    answer = api.client.request(method, path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == TEXT
    assert answer.text == ("" if method == "HEAD" else "404 page not found")


def test_a_get_of_the_stream(api: Api) -> None:
    answer = api.get("/v1/lr/stream", slotName="x")
    said = 'Bad Request\n{"error":"could not upgrade to websocket connection"}'
    assert seen(answer) == (400, TEXT, said)
    assert answer.headers["sec-websocket-version"] == "13"
    assert seen(api.get("/v1/lr/stream")) == (400, JSON, NO_SLOT)
    assert seen(api.get("/v1/lr/stream", slotName="")) == (400, JSON, NO_SLOT)


def test_handshakes_that_are_refused(api: Api, guarded: Api) -> None:
    assert shaken(api, "") == (400, JSON, NO_SLOT)
    status, kind, said = shaken(api, origin="https://evil.example")
    assert (status, kind) == (403, TEXT)
    assert said.startswith('Forbidden\n{"error":"a web page of another origin')
    status, kind, said = shaken(guarded)
    assert (status, kind) == (401, TEXT)
    assert said.startswith('Unauthorized\n{"error":"this endpoint needs the header')


def test_the_token_holds_and_an_open_wire_needs_none(guarded: Api, opened: Api) -> None:
    refused = guarded.client.get("/v1/init")
    assert refused.json()["error"].startswith("this endpoint needs the header Authorization: Bearer")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert guarded.client.get("/v1/init", headers=TOKEN).text == NO_INIT
    assert refusal(guarded, "delta_face100", additional_headers=TOKEN)[0] == 4404
    assert opened.client.get("/v1/init").text == NO_INIT
    assert refusal(opened, "delta_face100")[0] == 4404
    assert opened.client.get("/v1/events").status_code == 401
    rebound = opened.client.get("/v1/init", headers={"host": "rebound.example"})
    assert (rebound.status_code, list(rebound.json())) == (403, ["error"])


def test_other_pages_make_no_session(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        answer = api.client.get("/v1/init", headers=headers)
        assert (answer.status_code, list(answer.json())) == (403, ["error"])
    assert not [each for each in caplog.records if getattr(each, "action", "") == "session.refused"]


def test_a_body_that_is_too_large(api: Api) -> None:
    answer = api.client.post("/v1/snapshot/data", content=b"x" * 1_000_001)
    said = '{"error":"the body is larger than 1,000,000 bytes; send less at a time"}'
    assert seen(answer) == (413, JSON, said)


def test_no_session_can_be_made(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert seen(api.get("/v1/init")) == (500, JSON, NO_INIT)
    [said] = [each for each in caplog.records if getattr(each, "action", "") == "session.refused"]
    assert "source (host=/nowhere) is not available" in said.getMessage()


def test_without_a_session_the_body_does_not_matter(api: Api) -> None:
    for body in (b"", b"{", b'{"table":5}', b'{"slotName":"x","table":"t","offset":0,"limit":1}'):
        assert seen(api.client.post("/v1/snapshot/data", content=body)) == (503, JSON, NO_SESSION)


def test_sessions_whose_snapshot_is_not_here(source_dsn: str, database_dsn: str) -> None:
    with answering(database_dsn, wires=("pgdeltastream",), source_dsn=source_dsn) as api:
        with psycopg.connect(database_dsn, autocommit=True) as log:
            log.execute(A_SESSION)
        header = {"content-type": "application/x-www-form-urlencoded"}
        invalid = api.client.post("/v1/snapshot/data", content=b'{"table":""}', headers=header)
        assert seen(invalid) == (400, JSON, '{"error":"invalid input JSON"}')
        for slot in ({}, {"slotName": ""}, {"slotName": "delta_few1"}, {"slotName": "delta_few2"}):
            assert seen(api.post("/v1/snapshot/data", **PAGE, **slot)) == (500, JSON, NO_ROWS)
        for name in ("delta_few3", "a\0", "'", "x" * 500):
            assert seen(api.post("/v1/snapshot/data", **PAGE, slotName=name)) == (503, JSON, NO_SESSION)
        code, reason = refusal(api, "delta_few1")
        assert (code, "it was idle" in reason) == (4410, True)
        assert refusal(api, "delta_few2")[0] == 4410
        assert refusal(api, "%00")[0] == 4404


def test_a_silent_source_delays_neither_other_requests_nor_the_stop(silent: str, database_dsn: str) -> None:
    answers: list[httpx.Response] = []
    with answering(database_dsn, wires=("pgdeltastream",), source_dsn=silent) as api:
        with psycopg.connect(database_dsn, autocommit=True) as log:
            log.execute(A_SESSION)
        code, reason = refusal(api, "delta_few2")
        assert code == 1012
        assert "127.0.0.1" not in reason
        before = threading.enumerate()  # the stream's may still be there
        waits = threading.Thread(target=lambda: answers.append(httpx.get(f"{api.url}/v1/init", timeout=60)))
        waits.start()
        eventually(lambda: any(each.name == background.NAME for each in {*threading.enumerate()} - {*before}))
        assert api.get("/healthz").text == "ok\n"
        began = time.monotonic()
        api.stop()
        assert time.monotonic() - began < IN_TIME
        waits.join(60)
    assert [seen(answer) for answer in answers] == [(500, JSON, NO_INIT)]


def test_while_the_pipeline_database_is_silent_a_stream_is_refused_in_time(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert streams.FIND_SECONDS < 5
    monkeypatch.setattr(streams, "FIND_SECONDS", 0.2)
    with answering(silent, wires=("pgdeltastream",)) as api:
        assert refusal(api, "delta_few2")[0] == 1012


def test_nothing_of_it_is_in_openapi_or_there_when_it_is_not_served(api: Api, dsn: str) -> None:
    assert not [path for path in api.get("/openapi.json").json()["paths"] if path in ("/v1/init", "/v1/lr/stream")]
    with answering(dsn) as plain, suppress(InvalidStatus):
        unknown = plain.get("/v1/unknown")
        for path in ("/v1/init", "/v1/snapshot/data", "/v1/lr/stream"):
            answer = plain.get(path)
            assert (answer.status_code, answer.content) == (404, unknown.content)
            assert answer.headers["content-type"] == "application/problem+json"
        connect(f"ws://127.0.0.1:{plain.config.http_port}/v1/lr/stream?slotName=x", proxy=None).close()
        raise AssertionError("a handshake was accepted")
