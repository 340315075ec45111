"""Requests that are not complete have time limits and places, and take neither memory nor places of complete ones."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
import trustme

from pipeline.api import access_guard, app, connection_places, http_protocol
from tests.fixtures.api import Api, answering
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

TOKEN = "correct horse battery staple"
MOST, WAITING = 20, 2
BEARER = f"authorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("api", cluster.template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def api(dsn: str) -> Iterator[Api]:
    """It has places for 20 connections, and 2 of them are for requests that are not complete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_protocol, "MAX_CONNECTIONS", MOST)
        settings = {"wires": ("pgdeltastream",), "open_wires": ("pgdeltastream",)}
        with answering(dsn, api_token=TOKEN, **settings) as api:
            api.client.headers["authorization"] = f"Bearer {TOKEN}"
            yield api


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(api: Api, stack: ExitStack, sent: bytes | str = b"") -> socket.socket:
    line = stack.enter_context(socket.create_connection(("127.0.0.1", api.config.http_port)))
    line.settimeout(60)
    line.sendall(sent.encode() if isinstance(sent, str) else sent)
    return line


def head(target: str, *headers: str, token: bool = True) -> str:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"{target} HTTP/1.1\r\nhost: localhost\r\n{BEARER if token else ''}{lines}\r\n"


def everything(line: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    try:
        while piece := line.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def answered(line: socket.socket) -> int:
    """The status of the next answer, which is read to its end."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        if not (piece := line.recv(1)):
            raise ConnectionResetError
        answer += piece
    sizes = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(sizes[0].split()[1]) if sizes else 0
    while left:
        left -= len(line.recv(left) or pytest.fail("closed before the end"))
    return status(answer)


def status(answer: bytes) -> int:
    return int(answer.split()[1]) if answer else 0


def new_consumer(api: Api, stack: ExitStack, body: bytes, size: int) -> socket.socket:
    """A request whose token the server has seen, and then a part of its body."""
    headers = (f"content-length: {size}", "content-type: application/json", "expect: 100-continue")
    line = opened(api, stack, head("POST /v1/consumers", *headers))
    assert answered(line) == 100
    line.sendall(body)
    return line


@pytest.mark.parametrize("announced", ["content-length: 999", "transfer-encoding: chunked"])
@pytest.mark.parametrize(("target", "expected"), [("GET /healthz", 200), ("POST /healthz", 405)])
def test_an_open_path_answers_without_the_body(
    api: Api, stack: ExitStack, target: str, expected: int, announced: str
) -> None:
    answer = everything(opened(api, stack, head(target, announced, token=False)))
    assert status(answer) == expected
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("token", [True, False])
def test_a_body_that_does_not_come_is_answered_408(
    api: Api, stack: ExitStack, token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_guard, "BODY_SECONDS_WITH_TOKEN" if token else "BODY_SECONDS", 0.2)
    target = "POST /v1/consumers" if token else "POST /v1/init"
    answer = everything(opened(api, stack, head(target, "content-length: 9", token=token) + "{"))
    assert status(answer) == 408
    assert b"the body did not arrive within 0.2 s" in answer


def test_without_the_token_a_body_has_less_time() -> None:
    assert (access_guard.BODY_SECONDS, access_guard.BODY_SECONDS_WITH_TOKEN) == (10, 60)


def test_the_oldest_body_is_answered_503_if_all_hold_too_much(
    api: Api, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_places, "MAX_INCOMPLETE_BYTES", 300_000)
    oldest = new_consumer(api, stack, b"x" * 200_000, 900_000)
    new_consumer(api, stack, b"x" * 200_000, 900_000)
    answer = everything(oldest)
    assert status(answer) == 503
    assert b"retry-after: 5" in answer


def test_chunks_of_one_byte_cost_no_memory(api: Api, stack: ExitStack) -> None:
    line = opened(api, stack, head("POST /v1/consumers", "transfer-encoding: chunked", "connection: close"))
    tracemalloc.start()
    try:
        line.sendall(b"1\r\nx\r\n" * 8_000)
        line.sendall(b"0\r\n\r\n")
        assert status(everything(line)) == 422
        assert tracemalloc.get_traced_memory()[1] < 800_000
    finally:
        tracemalloc.stop()


def test_chunks_without_the_token_are_not_read(api: Api, stack: ExitStack) -> None:
    line = opened(api, stack, head("POST /v1/consumers", "transfer-encoding: chunked", token=False))
    assert status(everything(line)) == 401


def test_who_has_shown_the_token_keeps_its_place(api: Api, stack: ExitStack) -> None:
    body = json.dumps({"name": "kept"}).encode()
    line = new_consumer(api, stack, body[:3], len(body))
    silent = [opened(api, stack) for _ in range(10 * WAITING)]
    assert [everything(each) for each in silent[:-1]] == [b""] * (len(silent) - 1)
    line.sendall(body[3:])
    assert answered(line) == 201
    api.client.delete("/v1/consumers/kept")


def test_the_oldest_yields_if_all_have_shown_the_token(api: Api, stack: ExitStack) -> None:
    lines = [new_consumer(api, stack, b"{", 9) for _ in range(WAITING + 1)]
    assert status(everything(lines[0])) == 503
    assert api.get("/healthz").status_code == 200


def test_silent_connections_take_no_place_of_a_complete_request(api: Api, stack: ExitStack) -> None:
    api.post("/v1/consumers", name="polled")
    body = json.dumps({"wait": 60}).encode()
    asked = head("POST /v1/consumers/polled/receive", f"content-length: {len(body)}", "content-type: application/json")
    polls: list[socket.socket] = []

    def full() -> None:
        polls.append(opened(api, stack, asked.encode() + body))
        assert api.client.get("/v1/consumers").status_code == 503

    eventually(full, errors=(AssertionError, httpx.TransportError))
    assert httpx.get(f"{api.url}/healthz", timeout=60).status_code == 200
    silent = [opened(api, stack) for _ in range(10 * WAITING)]
    assert [everything(line) for line in silent[:-WAITING]] == [b""] * (len(silent) - WAITING)
    assert sum(map(waits, polls)) >= MOST - WAITING - 1
    for line in polls:
        line.close()
    eventually(lambda: api.client.get("/v1/consumers").status_code == 200, errors=(httpx.TransportError,))


def waits(line: socket.socket) -> bool:
    """True if its request has no answer yet."""
    line.setblocking(False)
    try:
        line.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_an_idle_connection_gives_way_to_a_complete_request(api: Api, stack: ExitStack) -> None:
    idle: list[socket.socket] = []
    while len(idle) < MOST - WAITING:
        with suppress(OSError):  # while connections of other tests are still being closed
            line = opened(api, stack, head("GET /healthz", token=False))
            assert answered(line) == 200
            idle.append(line)
    asked = opened(api, stack, head("GET /v1/consumers"))
    assert answered(asked) == 200
    assert everything(idle[0]) == b""


@pytest.mark.parametrize("sent", [b"x", b""])
def test_a_refused_connection_is_closed_even_if_it_trickles(
    api: Api, stack: ExitStack, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "REFUSED_SECONDS", 0.5)

    def refused() -> socket.socket:
        line = opened(api, stack, head("POST /v1/consumers", "content-length: 999999", token=False))
        assert answered(line) == 401
        return line

    line = eventually(refused, errors=(OSError,))  # a busy machine may need longer than 0.5 s to answer
    line.settimeout(0.05)

    def is_closed() -> bool:
        try:
            line.sendall(sent)
            return line.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    eventually(is_closed)


def test_a_refused_request_that_completes_leaves_its_connection_open(api: Api, stack: ExitStack) -> None:
    line = opened(api, stack, head("POST /v1/consumers", "content-length: 2", token=False))
    assert answered(line) == 401
    line.sendall(b"{}" + head("GET /v1/consumers").encode())
    assert answered(line) == 200


@pytest.mark.long
def test_a_client_that_reads_no_refusals_is_closed(api: Api, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REFUSED_SECONDS", 0.5)
    line = stack.enter_context(socket.socket())
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    line.connect(("127.0.0.1", api.config.http_port))
    asked = head("GET /v1/consumers", token=False).encode() * 100
    with pytest.raises(OSError, match=r"reset|pipe"):
        while True:
            line.sendall(asked)


def test_a_head_of_many_lines_is_refused(api: Api, stack: ExitStack) -> None:
    line = opened(api, stack, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + "a:\r\n" * 150)
    line.sendall(b"a:\r\n" * 150)
    assert status(everything(line)) == 431
    many = head("GET /healthz", *["a: b"] * 200, "connection: close", token=False)
    assert status(everything(opened(api, stack, many))) == 200


def test_a_tls_handshake_has_ten_seconds_and_a_place(
    dsn: str, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.HANDSHAKE_SECONDS == 10
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", MOST)
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    api = answering(dsn, http_certificate=tmp_path / "cert.pem", http_key=tmp_path / "key.pem")
    api.client = httpx.Client(base_url=api.url.replace("http://127.0.0.1", "https://localhost"), verify=trusted)
    with api:
        half = [opened(api, stack, b"\x16\x03\x01") for _ in range(10 * WAITING)]
        assert [everything(line) for line in half[:-WAITING]] == [b""] * (len(half) - WAITING)
        assert api.get("/v1/consumers").status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(app, "HANDSHAKE_SECONDS", 0.2)
            assert everything(opened(api, stack, b"\x16\x03\x01")) == b""
        answers: list[int] = []
        ask = threading.Thread(target=lambda: answers.append(api.get("/healthz").status_code))
        ask.start()
        ask.join(60)
        assert answers == [200]
        api.client.close()  # or the end of the server would wait for it
