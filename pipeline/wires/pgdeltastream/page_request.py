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
"""The largest offset and limit: PG Delta Stream reads them as unsigned numbers of 64 bits."""

Direction = Literal["asc", "desc"]


class PageRequestError(Exception):
    """The body is not a valid request; the message is for the client."""


@dataclass(frozen=True)
class SnapshotPageRequest:
    """Rows of a table from `offset` on, at most `limit`. `slot`: the session's; None stands for the newest session."""

    slot: str | None
    table: str
    offset: int
    limit: int
    order_by: tuple[str, Direction] | None

    @classmethod
    def parse(cls, body: bytes) -> SnapshotPageRequest:
        """Parse JSON, whatever its Content-Type. Other keys are ignored; keys in capitals are accepted.

        Raises PageRequestError.
        """
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
        raise PageRequestError(NO_COLUMN)
    match direction.lower():
        case "asc":
            return column, "asc"
        case "desc":
            return column, "desc"
    raise PageRequestError(NO_DIRECTION)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body.decode(errors="replace"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _refuse()


def _object(value: Any) -> dict[str, Any]:
    return {key.lower(): each for key, each in value.items()} if isinstance(value, dict) else _refuse()


def _text(given: dict[str, Any], key: str) -> str:
    """Return the text of a key; an empty text if the key is absent or null."""
    value = given.get(key)
    if isinstance(value, str) and SURROGATE.search(value):
        raise PageRequestError(NOT_UNICODE)
    return value if isinstance(value, str) else "" if value is None else _refuse()


def _number(given: dict[str, Any], key: str) -> int:
    value = given.get(key)
    return value if type(value) is int and 0 <= value <= _MOST else _refuse()


def _refuse(_constant: str = "") -> NoReturn:
    raise PageRequestError(INVALID)
