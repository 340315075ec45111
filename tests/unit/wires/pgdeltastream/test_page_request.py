"""Bodies that ask for a page of a snapshot: what is taken, and which error comes first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.wires.pgdeltastream.page_request import (
    INVALID,
    NO_COLUMN,
    NO_DIRECTION,
    PageRequestError,
    SnapshotPageRequest,
)

FULL = {"slotName": "delta_face7", "table": "public.t", "offset": 0, "limit": 10}
ORDER = {"column": "id", "order": "ASC"}


def parsed(**changed: Any) -> SnapshotPageRequest:
    return SnapshotPageRequest.parse(json.dumps({**FULL, **changed}).encode())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ("delta_face7", "public.t", 0, 10, None)),
        ({"slotName": None, "order_by": None}, (None, "public.t", 0, 10, None)),
        ({"slotName": ""}, (None, "public.t", 0, 10, None)),
        ({"order_by": ORDER}, ("delta_face7", "public.t", 0, 10, ("id", "asc"))),
        (
            {"order_by": {"column": "a b", "order": "dEsC", "nulls": 1}},
            ("delta_face7", "public.t", 0, 10, ("a b", "desc")),
        ),
        ({"limit": 2**64 - 1, "offset": 10**12}, ("delta_face7", "public.t", 10**12, 2**64 - 1, None)),
        ({"TABLE": '"Mixed"', "other": [1]}, ("delta_face7", '"Mixed"', 0, 10, None)),
    ],
)
def test_what_is_taken(changed: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = parsed(**changed)
    assert (found.slot, found.table, found.offset, found.limit, found.order_by) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"table": ""},
        {"table": None},
        {"table": 5},
        {"slotName": 5},
        {"offset": "0"},
        {"offset": None},
        {"offset": -1},
        {"offset": True},
        {"limit": 1.0},
        {"limit": 2**64},
        {"limit": float("nan")},
        {"order_by": "id"},
        {"order_by": []},
        {"order_by": {"column": 5, "order": "ASC"}},
        {"order_by": {"column": "", "order": 5}},
        {"limit": -1, "order_by": {}},
    ],
)
def test_what_is_no_request(changed: dict[str, Any]) -> None:
    with pytest.raises(PageRequestError, match=INVALID):
        parsed(**changed)


@pytest.mark.parametrize("missing", ["table", "offset", "limit"])
def test_what_is_missing(missing: str) -> None:
    body = json.dumps({key: value for key, value in FULL.items() if key != missing})
    with pytest.raises(PageRequestError, match=INVALID):
        SnapshotPageRequest.parse(body.encode())


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{", b"\xff", b"\xef\xbb\xbf{}", b'{"limit": NaN}', b"[" * 100_000, b"9" * 5_000]
)
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(PageRequestError, match=INVALID):
        SnapshotPageRequest.parse(body)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"table": "public.\ud800"}',
        rb'{"table": "x", "slotName": "\udfff"}',
        rb'{"table": "x", "limit": 1, "offset": 0, "order_by": {"column": "\ud800", "order": "ASC"}}',
    ],
)
def test_half_of_a_surrogate_pair_is_refused(body: bytes) -> None:
    with pytest.raises(PageRequestError, match="half of a surrogate pair"):
        SnapshotPageRequest.parse(body)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({}, NO_COLUMN),
        ({"column": "", "order": "sideways"}, NO_COLUMN),
        ({"column": None, "order": "ASC"}, NO_COLUMN),
        ({"column": "id"}, NO_DIRECTION),
        ({"column": "id", "order": None}, NO_DIRECTION),
        ({"column": "id", "order": "ASC "}, NO_DIRECTION),
        ({"column": "id", "order": "sideways"}, NO_DIRECTION),
    ],
)
def test_an_order_names_a_column_and_then_a_direction(order: dict[str, Any], said: str) -> None:
    with pytest.raises(PageRequestError) as raised:
        parsed(order_by=order)
    assert str(raised.value) == said
