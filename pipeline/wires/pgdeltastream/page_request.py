"""The body of a request for a page of a snapshot, checked in the order in which PG Delta Stream did. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from pipeline.api.patterns import SURROGATE

INVALID = "invalid input JSON"
NOT_UNICODE = "invalid input JSON: a text may not hold half of a surrogate pair"
NO_COLUMN = "required field 'column' missing in 'order_by'"
NO_DIRECTION = "order_by order direction can only be either 'ASC' or 'DESC'"
_MOST = 2**64 - 1
"""The numbers were unsigned, of 64 bits."""

Direction = Literal["asc", "desc"]


class Refused(Exception):
    """The body is not a request; the text is for the client."""


@dataclass(frozen=True)
class PageRequest:
    """Rows of a table from `offset` on, at most `limit`. `slot`: of the session; None: of the newest one."""

    slot: str | None
    table: str
    offset: int
    limit: int
    order_by: tuple[str, Direction] | None

    @classmethod
    def parse(cls, body: bytes) -> PageRequest:
        """From JSON, whatever its Content-Type; other keys are ignored, keys in capitals taken. Raises Refused."""
        given = _object(_decoded(body))
        order = given.get("order_by")
        by = None if order is None else _object(order)
        return cls(
            slot=_text(given, "slotname") or None,
            table=_text(given, "table") or _refuse(),
            offset=_number(given, "offset"),
            limit=_number(given, "limit"),
            order_by=None if by is None else _order(_text(by, "column"), _text(by, "order")),
        )


def _order(column: str, direction: str) -> tuple[str, Direction]:
    if not column:
        raise Refused(NO_COLUMN)
    match direction.lower():
        case "asc":
            return column, "asc"
        case "desc":
            return column, "desc"
    raise Refused(NO_DIRECTION)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body.decode(errors="replace"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _refuse()


def _object(value: Any) -> dict[str, Any]:
    return {key.lower(): each for key, each in value.items()} if isinstance(value, dict) else _refuse()


def _text(given: dict[str, Any], key: str) -> str:
    """The text, empty when it is absent or null."""
    value = given.get(key)
    if isinstance(value, str) and SURROGATE.search(value):
        raise Refused(NOT_UNICODE)
    return value if isinstance(value, str) else "" if value is None else _refuse()


def _number(given: dict[str, Any], key: str) -> int:
    value = given.get(key)
    return value if type(value) is int and 0 <= value <= _MOST else _refuse()


def _refuse(_constant: str = "") -> NoReturn:
    raise Refused(INVALID)
