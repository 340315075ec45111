"""Requests of Sequin's clients: which parameters are taken from where, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.wires.sequin import request_parameters as parameters
from pipeline.wires.sequin.request_parameters import (
    BAD_IDS,
    BAD_SIZE,
    BAD_WAIT,
    NOT_JSON,
    ParameterError,
    ReceiveParameters,
)

ONE = "7ffb1b4e-3b9c-4a52-8f0e-6b7c3c1a9d10"


def taken(query: dict[str, str], body: bytes, kind: str | None = "application/json", method: str = "POST") -> Any:
    return parameters.parameters(query, kind, body, is_post=method == "POST")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ReceiveParameters(1, 0)),
        ({"max_batch_size": 10}, ReceiveParameters(10, 0)),
        ({"batch_size": "1000"}, ReceiveParameters(1000, 0)),
        ({"batch_size": 2, "max_batch_size": 3}, ReceiveParameters(2, 0)),
        ({"max_batch_size": 10.0, "wait_for": 500}, ReceiveParameters(10, 0.5)),
        ({"wait_for": "5000"}, ReceiveParameters(1, 5)),
        ({"wait_for": "5000ms"}, ReceiveParameters(1, 5)),
        ({"wait_for": "60s"}, ReceiveParameters(1, 60)),
        ({"wait_for": "5m"}, ReceiveParameters(1, 300)),
        ({"wait_for": 300_000}, ReceiveParameters(1, 300)),
        ({"wait_for": None, "max_batch_size": None, "other": 1}, ReceiveParameters(1, 0)),
    ],
)
def test_what_a_receive_takes(given: dict[str, Any], expected: ReceiveParameters) -> None:
    assert parameters.receive(given) == expected


@pytest.mark.parametrize("size", [0, -1, 1001, "0", "x", "1_0", "", "\uff11", 1.5, True, [], "9" * 5000, 1e400])
@pytest.mark.parametrize("name", ["max_batch_size", "batch_size"])
def test_a_wrong_size(name: str, size: Any) -> None:
    with pytest.raises(ParameterError, match=BAD_SIZE):
        parameters.receive({name: size})


@pytest.mark.parametrize(
    "wait",
    [499, 300_001, 0, -1, "499", "499ms", "301s", "6m", "5h", "5 s", "NaN", "", "1.5s", "5000\n", "9" * 5000, True, []],
)
def test_a_wrong_wait(wait: Any) -> None:
    with pytest.raises(ParameterError) as refused:
        parameters.receive({"wait_for": wait})
    assert str(refused.value) == BAD_WAIT


@pytest.mark.parametrize("wait", [float("nan"), float("inf")])
def test_a_number_that_is_none(wait: float) -> None:
    with pytest.raises(ParameterError):
        parameters.receive({"wait_for": wait})


def test_ids_are_taken_as_they_are() -> None:
    ids = [ONE, ONE.upper()] * 5000
    assert parameters.ack_ids({"ack_ids": ids}) == ids


@pytest.mark.parametrize(
    "ids", [None, [], "", ONE, {ONE: 1}, [ONE, 5], [ONE, "x"], ["{" + ONE + "}"], [ONE + "\n"], [None], [ONE] * 10_001]
)
def test_what_is_no_list_of_uuids(ids: Any) -> None:
    with pytest.raises(ParameterError, match=BAD_IDS.partition("`.")[2]):
        parameters.ack_ids({"ack_ids": ids})


def test_the_body_counts_where_the_query_has_it_too() -> None:
    assert taken({"batch_size": "1", "wait_for": "5s"}, b'{"batch_size": 2}') == {"batch_size": 2, "wait_for": "5s"}


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", None])
def test_a_post_without_a_body(kind: str | None) -> None:
    assert taken({"batch_size": "3"}, b"", kind) == {"batch_size": "3"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (None, b"{}"),
        ("application/x-www-form-urlencoded", b"batch_size=1"),
        ("text/plain", b'{"batch_size": 1}'),
        ("text/plain", b""),
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b'"text"'),
        ("application/json", b"\xff"),
        ("application/json", b'{"wait_for": NaN}'),
        ("application/json", b"[" * 100_000),
        ("application/json", b'{"a": ' + b"9" * 5000 + b"}"),
    ],
)
def test_a_post_that_is_no_json_object(kind: str | None, body: bytes) -> None:
    with pytest.raises(ParameterError) as refused:
        taken({}, body, kind)
    assert str(refused.value) == NOT_JSON


def test_a_get_has_its_parameters_in_the_query_or_in_json() -> None:
    assert taken({"batch_size": "3"}, b"ignored", "text/plain", "GET") == {"batch_size": "3"}
    assert taken({}, json.dumps({"batch_size": 3}).encode(), method="GET") == {"batch_size": 3}
