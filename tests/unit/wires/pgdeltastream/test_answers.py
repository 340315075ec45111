"""What PG Delta Stream's clients see and say, to the byte."""

from __future__ import annotations

import re

import pytest
from fastapi import Response

from pipeline.api.wire import ErrorAnswer
from pipeline.config.settings import load
from pipeline.config.wires import WIRES as NAMES
from pipeline.server import served_endpoints
from pipeline.server.served_endpoints import WIRES
from pipeline.wires.pgdeltastream import answers, slot_names
from pipeline.wires.pgdeltastream.endpoints import WIRE
from pipeline.wires.pgdeltastream.streams import StreamClosedError, acknowledged

JSON, TEXT = "application/json; charset=utf-8", "text/plain; charset=utf-8"


def seen(answer: Response) -> tuple[int, str, bytes]:
    return answer.status_code, answer.headers["content-type"], bytes(answer.body)


def test_every_name_of_the_settings_is_a_wire() -> None:
    assert all(wire.name == name for name, wire in WIRES.items())
    over_grpc = served_endpoints.grpc_services(
        load(source_dsn="host=/nowhere", database_dsn="host=/nowhere"), "test"
    ).wires
    assert sorted([*WIRES, *over_grpc.values()]) == sorted(NAMES)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ErrorAnswer(404, "unknown path"), (404, TEXT, b"404 page not found")),
        (ErrorAnswer(405, "not that method", {"Allow": "GET"}), (404, TEXT, b"404 page not found")),
        (ErrorAnswer(401, "it wants ä"), (401, JSON, '{"error":"it wants ä"}'.encode())),
        (ErrorAnswer(413, "too large"), (413, JSON, b'{"error":"too large"}')),
        (ErrorAnswer(503, "away"), (503, JSON, b'{"error":"away"}')),
        (ErrorAnswer(403, "no", handshake=True), (403, TEXT, b'Forbidden\n{"error":"no"}')),
    ],
)
def test_errors(failure: ErrorAnswer, expected: tuple[int, str, bytes]) -> None:
    assert seen(WIRE.answer(failure)) == expected


def test_headers_are_kept_and_a_handshake_says_its_version() -> None:
    answer = WIRE.answer(ErrorAnswer(401, "no", {"WWW-Authenticate": "Bearer"}, handshake=True))
    assert (answer.headers["www-authenticate"], answer.headers["sec-websocket-version"]) == ("Bearer", "13")
    assert WIRE.answer(ErrorAnswer(503, "away", {"Retry-After": "5"})).headers["retry-after"] == "5"


def test_a_get_of_the_stream() -> None:
    answer = answers.not_a_websocket()
    assert seen(answer) == (400, TEXT, b'Bad Request\n{"error":"could not upgrade to websocket connection"}')
    assert answer.headers["sec-websocket-version"] == "13"


def test_names_of_slots() -> None:
    words = "gigantic|scold|greasy|shaggy|wasteful|few|face|pet|ablaze|mundane"
    names = {slot_names.any_name() for _ in range(300)}
    assert all(re.fullmatch(rf"delta_({words})\d{{1,2}}", name) for name in names)
    assert len(names) > 100


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ('{"lsn":"0/16B3748"}', "0/16B3748"),
        ('{"lsn":"0/16B3748","more":"x"}', "0/16B3748"),
        ('{"lsn":"anything"}', "anything"),
        ("{}", None),
        ('{"lsn":""}', None),
    ],
)
def test_what_a_client_acknowledges(text: str, lsn: str | None) -> None:
    assert acknowledged(text) == lsn


@pytest.mark.parametrize(
    "text", ["", "lsn", '{"lsn":"0/1', "[]", "null", '"0/1"', '{"lsn":5}', '{"lsn":null}', "[" * 60_000]
)
def test_what_is_no_acknowledgement_ends_the_stream(text: str) -> None:
    with pytest.raises(StreamClosedError) as raised:
        acknowledged(text)
    assert raised.value.code == 1008
    assert len(str(raised.value)) <= 123
