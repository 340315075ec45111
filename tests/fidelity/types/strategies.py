"""Any value of any type, as the text that Postgres takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("\\\"'{}(),;%$\t\n\r \x01\x7f")
TEXT = st.text(CHARACTERS, max_size=12)
WORD = st.text(CHARACTERS, min_size=1, max_size=8)
DIGITS = st.text("0123456789", min_size=1, max_size=9)
FLOATS = (st.floats() | st.sampled_from([-0.0, 5e-324, 1.7976931348623157e308])).map(repr)
FLOATS_4 = st.floats(width=32).map(repr)
FINITE = st.floats(allow_nan=False, allow_infinity=False).map(repr)
MICROSECONDS = st.integers(0, 999_999)


@st.composite
def numerics(draw: st.DrawFn) -> str:
    """Up to a thousand digits on either side."""
    sign, whole, times = draw(st.sampled_from(["", "-"])), draw(DIGITS), draw(st.sampled_from([1, 1, 1, 111]))
    return f"{sign}{whole * times}.{draw(DIGITS) * draw(st.sampled_from([1, 1, 111]))}"


@st.composite
def dates(draw: st.DrawFn, last: int = 294_276) -> tuple[str, str]:
    """Year, month and day, and the era."""
    year = draw(st.integers(1, last) | st.integers(1900, 2100))
    era = draw(st.sampled_from(["", "", " BC"]))
    if era:
        year = min(year, 4713)
    return f"{year:04}-{draw(st.integers(1, 12)):02}-{draw(st.integers(1, 28)):02}", era


@st.composite
def times(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 19)) == 0:
        return "24:00:00"
    clock = ":".join(f"{draw(st.integers(0, last)):02}" for last in (23, 59, 59))
    return f"{clock}.{draw(MICROSECONDS):06}"


def infinite(strategy: Texts) -> Texts:
    return strategy | st.sampled_from(["infinity", "-infinity"])


DATES = infinite(dates(5_874_896).map("".join))
TIMESTAMPS = infinite(st.tuples(dates(), times()).map(lambda parts: f"{parts[0][0]} {parts[1]}{parts[0][1]}"))
TIMESTAMPS_TZ = infinite(st.tuples(dates(), times()).map(lambda parts: f"{parts[0][0]} {parts[1]}+00{parts[0][1]}"))
ZONES = st.builds("{}{:02}:{:02}:{:02}".format, st.sampled_from("+-"), *[st.integers(0, n) for n in (15, 59, 59)])
INTERVALS = st.builds(
    "{} months {} days {} microseconds".format,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(1 - 2**63, 2**63 - 1) | st.integers(-(10**10), 10**10),
)
POINTS = st.builds("({},{})".format, FLOATS, FLOATS)
FINITE_POINTS = st.builds("({},{})".format, FINITE, FINITE)


@st.composite
def documents(draw: st.DrawFn, characters: Texts = TEXT) -> str:
    """JSON as no person would write it: spaces anywhere, keys twice, escapes where none are needed."""
    space = st.sampled_from(["", "", " ", "\n\t"])

    def string(text: str) -> str:
        return json.dumps(text, ensure_ascii=draw(st.booleans()))

    def written(depth: int) -> str:
        kind = draw(st.integers(0, 5 if depth else 3))
        if kind < 3:
            return draw(st.sampled_from(["null", "true", "-0", "1.10", "1E+5", "0.0000001"]) | characters.map(string))
        if kind == 3:
            return str(draw(st.integers()))
        parts = [written(depth - 1) for _ in range(draw(st.integers(0, 3)))]
        if kind == 4:
            return f"[{draw(space)}{(draw(space) + ',').join(parts)}]"
        keys = [string(draw(st.sampled_from(["", "a", "%s"]) | characters)) for _ in parts]
        return "{" + ",".join(f"{draw(space)}{key}:{part}" for key, part in zip(keys, parts, strict=True)) + "}"

    return draw(space) + written(2) + draw(space)


def quoted(text: str | None, null: str) -> str:
    """An element of an array or a composite."""
    return null if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@st.composite
def arrays(draw: st.DrawFn, elements: Texts, separator: str = ",") -> str:
    """One or two dimensions, NULLs, other lower bounds."""
    element = (st.none() | elements).map(lambda text: quoted(text, "NULL"))
    width, height = draw(st.integers(0, 3)), draw(st.sampled_from([0, 0, 1, 2]))
    if not width:
        return "{}"
    rows = ["{" + separator.join(draw(element) for _ in range(width)) + "}" for _ in range(height or 1)]
    sizes = [height, width] if height else [width]
    bounds = ""
    if draw(st.booleans()):
        lower = [draw(st.integers(-5, 5)) for _ in sizes]
        bounds = "".join(f"[{low}:{low + size - 1}]" for low, size in zip(lower, sizes, strict=True)) + "="
    return bounds + ("{" + separator.join(rows) + "}" if height else rows[0])


def composites(*attributes: Texts) -> Texts:
    parts = [(st.none() | attribute).map(lambda text: quoted(text, "")) for attribute in attributes]
    return st.tuples(*parts).map(lambda texts: f"({','.join(texts)})")


@st.composite
def ranges(draw: st.DrawFn, values: st.SearchStrategy[Any], key: Callable[[Any], Any] = lambda value: value) -> str:
    """Between two values in their order; `key`: what they are ordered by."""
    if draw(st.integers(0, 9)) == 0:
        return "empty"
    low, high = sorted([draw(values), draw(values)], key=key)
    ends = ["" if draw(st.integers(0, 5)) == 0 else quoted(str(value), "") for value in (low, high)]
    return f"{draw(st.sampled_from('[('))}{ends[0]},{ends[1]}{draw(st.sampled_from('])'))}"


def multiranges(one: Texts) -> Texts:
    return st.lists(one, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}")


INT_RANGES = ranges(st.integers(-(2**31), 2**31 - 2))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda value: format(value, "f"))
NUMERIC_RANGES = ranges(DECIMALS, key=float)
TIME_RANGES = ranges(st.datetimes())
PLACES = composites(TEXT, st.integers(-(2**31), 2**31 - 1).map(str), TIMESTAMPS_TZ)
JSONB_TEXT = st.text(CHARACTERS, max_size=8)
LEXEMES = WORD.map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "''") + "'")

COLUMNS: dict[str, Texts] = {
    "smallint": st.integers(-(2**15), 2**15 - 1).map(str),
    "integer": st.integers(-(2**31), 2**31 - 1).map(str),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "real": FLOATS_4,
    "double precision": FLOATS,
    "numeric": numerics() | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    "money": st.integers(-(2**63), 2**63 - 1).map(lambda n: f"{'-' * (n < 0)}{abs(n) // 100}.{abs(n) % 100:02}"),
    "date": DATES,
    "time": times(),
    "timetz": st.tuples(times(), ZONES).map("".join),
    "timestamp": TIMESTAMPS,
    "timestamptz": TIMESTAMPS_TZ,
    "interval": INTERVALS,
    "text": TEXT,
    "varchar(12)": TEXT,
    "char(12)": TEXT,
    '"char"': st.integers(1, 127).map(chr),
    "name": st.text(CHARACTERS, max_size=15),
    "bytea": st.binary(max_size=20).map(lambda value: "\\x" + value.hex()),
    "boolean": st.sampled_from(["t", "f"]),
    "uuid": st.uuids().map(str),
    "bit varying": st.text("01", max_size=20),
    "inet": st.builds(lambda n, bits: f"{IPv4Address(n)}/{bits}", st.integers(0, 2**32 - 1), st.integers(0, 32))
    | st.integers(0, 2**128 - 1).map(lambda n: str(IPv6Address(n))),
    "macaddr8": st.binary(min_size=8, max_size=8).map(lambda value: value.hex(":")),
    "json": documents(st.text(st.characters(codec="utf-8"), max_size=8)),
    "jsonb": documents(JSONB_TEXT),
    "public.free_document": documents(),
    "tsvector": st.lists(LEXEMES, max_size=4).map(" ".join),
    "tsquery": st.lists(LEXEMES, min_size=1, max_size=4).map(" & ".join),
    "point": POINTS,
    "box": st.tuples(FINITE_POINTS, FINITE_POINTS).map(",".join),
    "lseg": st.tuples(POINTS, POINTS).map(",".join),
    "path": st.lists(POINTS, min_size=1, max_size=3).map(",".join).map(lambda points: f"[{points}]"),
    "polygon": st.lists(FINITE_POINTS, min_size=1, max_size=3).map(",".join).map(lambda points: f"({points})"),
    "public.mood": st.sampled_from(["sad", "so so", 'Happy, "very"', "it's \\ {} (,)"]),
    "public.place": PLACES,
    "public.nested": composites(PLACES, arrays(PLACES), composites(TEXT, documents(), documents()), FLOATS),
    "int4range": INT_RANGES,
    "numrange": NUMERIC_RANGES,
    "tsrange": TIME_RANGES,
    "public.text_range": ranges(TEXT, key=str.encode),
    "int4multirange": multiranges(INT_RANGES),
    "nummultirange": multiranges(NUMERIC_RANGES),
    "pg_lsn": st.builds("{:X}/{:X}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    "xid8": st.integers(0, 2**64 - 1).map(str),
    "tid": st.builds("({},{})".format, st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)),
    "int2vector": st.lists(st.integers(-(2**15), 2**15 - 1), max_size=5).map(lambda values: " ".join(map(str, values))),
}
"""Of each type; `array_of` is of an array of it."""


def array_of(type_name: str) -> Texts:
    return arrays(COLUMNS[type_name], ";" if type_name == "box" else ",")
