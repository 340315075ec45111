"""Reads parameters of Sequin's requests from the query and a JSON body, which takes precedence. Does no IO."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

NOT_JSON = "the body of a POST must be a JSON object, with Content-Type: application/json"
BAD_SIZE = "Invalid `max_batch_size`. It must be an integer between 1 and 1000."
BAD_WAIT = (
    "Invalid `wait_for`. It must be between 500 and 300,000 milliseconds, "
    "as a number or as text: 5000, 5000ms, 60s, 5m."
)
BAD_IDS = "Invalid `ack_ids`. It must be a non-empty list of UUIDs, at most 10,000 of them, at the top of the body."

MOST_IDS = 10_000
_MOST_ITEMS = 1000
_SHORTEST, _LONGEST = 500, 300_000
_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m)?")
_MILLISECONDS = {None: 1, "ms": 1, "s": 1000, "m": 60_000}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Parameters = Mapping[str, Any]


class ParameterError(Exception):
    """The request is invalid; the message is for the client."""


@dataclass(frozen=True)
class ReceiveParameters:
    """The parameters of a receive: at most `most` items; wait `wait` seconds for the first one."""

    most: int
    wait: float


def parameters(query: Mapping[str, str], content_type: str | None, body: bytes, *, is_post: bool) -> Parameters:
    """Return all parameters by name.

    Ignores an empty body, and one of a GET that is not JSON. Raises ParameterError.
    """
    kind = None if content_type is None else content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        if is_post and (body or kind is not None):
            raise ParameterError(NOT_JSON)
        return dict(query)
    return {**query, **(_object(body) if body.strip() else {})}


def receive(given: Parameters) -> ReceiveParameters:
    """Return the parameters of a receive. Raises ParameterError."""
    size = given.get("batch_size")
    wait = given.get("wait_for")
    return ReceiveParameters(
        most=_most(given.get("max_batch_size") if size is None else size),
        wait=0.0 if wait is None else _seconds(wait),
    )


def ack_ids(given: Parameters) -> list[str]:
    """Return the ids of deliveries. Raises ParameterError."""
    ids = given.get("ack_ids")
    if not isinstance(ids, list) or not 0 < len(ids) <= MOST_IDS:
        raise ParameterError(BAD_IDS)
    if not all(isinstance(each, str) and is_uuid(each) for each in ids):
        raise ParameterError(BAD_IDS)
    return ids


def is_uuid(text: str) -> bool:
    """True if the text is a UUID in its usual form."""
    return _UUID.fullmatch(text) is not None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError(NOT_JSON)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _most(given: Any) -> int:
    if given is None:
        return 1
    if isinstance(given, str) and _NUMBER.fullmatch(given):
        given = int(given)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if type(given) is not int or not 1 <= given <= _MOST_ITEMS:
        raise ParameterError(BAD_SIZE)
    return given


def _seconds(given: Any) -> float:
    if isinstance(given, str) and (found := _DURATION.fullmatch(given)):
        given = int(found[1]) * _MILLISECONDS[found[2]]
    if type(given) not in (int, float) or not math.isfinite(given) or not _SHORTEST <= given <= _LONGEST:
        raise ParameterError(BAD_WAIT)
    return float(given) / 1000
