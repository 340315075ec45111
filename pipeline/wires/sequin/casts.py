"""Converts the texts that Postgres prints to the JSON that Sequin's clients expect for each type. Does no IO."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal

from orjson import dumps

Cast = Callable[[str], str]
"""A function from the text of a value to JSON.

A value that its type cannot represent, such as infinity, becomes a string.
"""

_WHOLE = re.compile(r"-?\d+")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(\+00)?")
_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)|([{}])', re.DOTALL)
_ELEMENT_OF_BOXES = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{};"]+)|([{};])', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MARKS = {"{": "[", "}": "]", ";": ","}


def string(text: str) -> str:
    """Return a JSON string, which is the form of every type without a cast."""
    return dumps(text).decode()


def _boolean(text: str) -> str:
    return {"t": "true", "f": "false"}.get(text) or string(text)


def _whole(text: str) -> str:
    return text if _WHOLE.fullmatch(text) else string(text)


def _float(text: str) -> str:
    """Return the shortest form of the same number, with a point or an exponent even if it has no fraction."""
    try:
        number = float(text)
    except ValueError:
        return string(text)
    return repr(number) if math.isfinite(number) else string(text)


def _numeric(text: str) -> str:
    """Return a JSON string with all digits, in exponent notation for values below one millionth."""
    if text.startswith(("0.000000", "-0.000000")):
        text = str(Decimal(text))
    return f'"{text}"'


def _timestamp(text: str) -> str:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:  # an infinity, a year BC or after 9999
        return string(text)
    date, time, fraction, zone = found.groups()
    return f'"{date}T{time}.{fraction or "":0<6}{"Z" if zone else ""}"'


def _interval(text: str) -> str:
    found = _INTERVAL.fullmatch(text)
    if found is None or not text:
        return string(text)
    years, months, days, sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    microseconds = whole * 1_000_000 + int(f"{fraction or '':0<6}")
    if sign == "-":
        microseconds = -microseconds
    return (
        f'{{"months":{int(years or 0) * 12 + int(months or 0)},"days":{int(days or 0)},"microseconds":{microseconds}}}'
    )


def _vector(text: str) -> str:
    """Return a JSON array for a vector of pgvector."""
    if text[:1] != "[" or text[-1:] != "]":
        return string(text)
    return f"[{','.join(map(_float, text[1:-1].split(',')))}]"


def _array(element: Cast, pattern: re.Pattern[str]) -> Cast:
    """Return a cast to nested JSON arrays, one level for each dimension; JSON cannot represent lower bounds."""

    def one(found: re.Match[str]) -> str:
        quoted, plain, mark = found.groups()
        if mark is not None:
            return _MARKS[mark]
        if quoted is not None:
            return element(_ESCAPED.sub(r"\1", quoted))
        return "null" if plain == "NULL" else element(plain)

    def cast(text: str) -> str:
        if text.startswith("["):  # the bounds: [0:1]={1,2}
            text = text.partition("=")[2]
        return pattern.sub(one, text) if text.startswith("{") else string(text)

    return cast


def _document(text: str) -> str:
    return text


_CASTS: dict[str, Cast] = {
    "boolean": _boolean,
    "smallint": _whole,
    "integer": _whole,
    "bigint": _whole,
    "oid": _whole,
    "real": _float,
    "double precision": _float,
    "numeric": _numeric,
    "timestamp without time zone": _timestamp,
    "timestamp with time zone": _timestamp,
    "interval": _interval,
    "json": _document,
    "jsonb": _document,
}
_IN_RECORD = ("boolean", "smallint", "integer", "bigint", "oid", "json", "jsonb")
"""Types whose values in `record` already have the right JSON."""


def of_type(name: str) -> Cast | None:
    """Return the cast of a type, as format_type names it with an empty search_path; None if it stays a string."""
    if name.endswith("[]"):
        element = name.removesuffix("[]")
        return _array(of_type(element) or string, _ELEMENT_OF_BOXES if element == "box" else _ELEMENT)
    return _vector if name == "vector" or name.endswith(".vector") else _CASTS.get(name)


def of_column(type_name: str, domain_of: str) -> Cast | None:
    """Return the cast of a column's values; None if `record` has the right form.

    Domains are cast as their base types.
    """
    if not domain_of:
        return None if type_name in _IN_RECORD else of_type(type_name)
    return None if domain_of in ("json", "jsonb") else of_type(domain_of)
