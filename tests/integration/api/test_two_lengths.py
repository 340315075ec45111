"""A request with two lengths is refused: a proxy that believes the other one takes its end for another request."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from pipeline.api.app import QuietRequests
from tests.fixtures.api import Api, answering
from tests.fixtures.postgres import Cluster

TOKEN = "correct horse battery staple"
BEARER = f"authorization: Bearer {TOKEN}"
CHUNKED, LENGTH = "transfer-encoding: chunked", "content-length: 5"
SMUGGLED = "0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    with cluster.database("api", cluster.template) as dsn, answering(dsn, api_token=TOKEN) as api:
        yield api


def statuses(api: Api, sent: str) -> list[int]:
    """Those of all answers until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", api.config.http_port)) as line:
        line.settimeout(60)
        line.sendall(sent.encode())
        found = b""
        while piece := line.recv(65_536):
            found += piece
    return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]


def request(target: str, *headers: str) -> str:
    return "".join(f"{line}\r\n" for line in (f"{target} HTTP/1.1", "host: localhost", *headers, ""))


@pytest.mark.parametrize(
    "headers",
    [
        (LENGTH, CHUNKED),
        (CHUNKED, LENGTH),
        ("Transfer-Encoding: Chunked", "CONTENT-LENGTH: 0"),
        (LENGTH, CHUNKED, BEARER),
        (LENGTH, CHUNKED, "upgrade: websocket", "connection: upgrade", BEARER),
        (LENGTH, "content-length: 6"),
        (CHUNKED, CHUNKED),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding : chunked",),
        ("content-length: +5",),
        ("content-length: 5, 6",),
    ],
)
@pytest.mark.parametrize("target", ["GET /healthz", "POST /v1/consumers", "GET /v1/consumers/c/stream"])
def test_a_request_of_unclear_length_is_refused_and_closed(api: Api, target: str, headers: tuple[str, ...]) -> None:
    assert statuses(api, request(target, *headers) + SMUGGLED) == [400]


def test_one_behind_a_good_request_is_refused_after_its_answer(api: Api) -> None:
    good = request("GET /v1/consumers", BEARER)
    assert statuses(api, good + request("POST /v1/consumers", BEARER, LENGTH, CHUNKED) + SMUGGLED) == [200, 400]


def test_requests_with_one_length_are_answered(api: Api) -> None:
    body = '{"name": "c1"}'
    sized = request("POST /v1/consumers", BEARER, "content-type: application/json", f"content-length: {len(body)}")
    chunked = request("POST /v1/consumers", BEARER, "content-type: application/json", CHUNKED)
    pieces = "e\r\n" + body.replace("1", "2") + "\r\n0\r\n\r\n"
    last = request("GET /v1/consumers/c2", BEARER, "connection: close")
    assert statuses(api, sized + body + chunked + pieces + last) == [201, 201, 200]


def test_requests_that_are_not_http_are_logged_once_a_minute(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for each in logging.getLogger("uvicorn.error").filters:
        if isinstance(each, QuietRequests):
            each._said.clear()  # what an earlier test has caused
    assert [statuses(api, "\x16\x03\x01\x02\x00\r\n\r\n") for _ in range(20)] == [[400]] * 20
    assert sum("Invalid HTTP request" in record.getMessage() for record in caplog.records) == 1
