"""Values at random, as SQL literals, by the type of a column."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence

from tests.torture.plan.statements import literal

_TEXTS = ("", "a", "it's", 'a "b"\n\t\\', "žluťoučký 🐎", "null", "\\N", "{}", "%s %(x)s", "\x01\x7f\u2028", "  ")
_JSON = (
    "null", "1", '"x"', "[]", '{"": "x", "a": [1, {"b": null}]}', "true", "1.50", '"\\"quoted\\""', "1e3", "{}", "-0",
)  # fmt: skip
_LOOSE = ('{"a":1, "a":2}', '{ "b" : [ 1 ,2] }', '"\\u0000"', '{"z":1,"a":2}', "1e400000", '"\\ud800"')
_FIXED: Mapping[str, Sequence[str]] = {
    "boolean": ("t", "f"),
    "numeric": (
        "0",
        "-0.00",
        "NaN",
        "Infinity",
        "-Infinity",
        "123456789012345678901234567890.123456789",
        "1e-20",
        "1.50",
    ),
    "real": ("0", "-0", "NaN", "Infinity", "1.5", "3.4e38", "1e-40", "0.1"),
    "double precision": ("0", "-0", "NaN", "-Infinity", "1.5", "1.7e308", "5e-324", "0.1", "123456789.123"),
    "bytea": ("\\x", "\\x00ff5c27", "\\xdeadbeef"),
    "date": ("2024-02-29", "infinity", "-infinity", "0044-03-15 BC", "9999-12-31"),
    "timestamp without time zone": ("2024-02-29 12:00:00.123456", "infinity", "0001-01-01 00:00:00 BC", "294276-12-31"),
    "timestamp with time zone": ("2024-02-29 12:00:00.5+05:30", "-infinity", "infinity", "4713-01-01 BC"),
    "time without time zone": ("24:00:00", "00:00:00", "12:34:56.789"),
    "time with time zone": ("24:00:00+15:59", "12:00:00-08"),
    "interval": ("1 year -2 mons 3 days -04:05:06.7", "0", "-1 day", "178000000 years"),
    "money": ("12.50", "-0.01", "92233720368547758.07"),
    "uuid": (),
    "inet": ("10.0.0.1", "::1/64"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "bit": ("101", "000"),
    "bit varying": ("", "1", "10101010"),
    "point": ("(1,2)", "(1e300,-0)"),
    "tsvector": ("'a':1A 'b c':2", ""),
    "pg_lsn": ("0/0", "FF/FFFFFFFF"),
    '"char"': ("a", "", "\\"),
    "oid": ("0", "4294967295"),
    "int4range": ("empty", "[1,5)", "(,)", "[3,)"),
    "nummultirange": ("{}", "{[1.5,2.5),[3,4)}"),
    "tstzrange": ("empty", "[2024-01-01,infinity)", "(,2024-01-01 00:00:00.5+00]"),
    "integer[]": ("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={1,2}"),
    "bigint[]": ("{}", "{1,NULL,3}"),
    "date[]": ("{}", "{2024-01-01,infinity,NULL}"),
    "text[]": ("{}", '{a,"b \\"c\\"",NULL,"NULL",""}', "{{a},{b}}"),
    "numeric[]": ("{1.50,NaN,NULL}", "{}"),
    "jsonb[]": ('{"{\\"a\\": 1}",null,"null"}', "{}"),
    "types.place": ('(1,"a, ""b""","{x,NULL}")', "(,,)"),
    "types.place[]": ('{"(1,a,{})",NULL}', "{}"),
    "types.mood[]": ("{sad,NULL,ok}", "{}"),
}


KEY_CHARACTERS = 300
"""Of one column of a key, at most."""


def key_value(chance: random.Random, type_name: str, most: int, moods: Sequence[str]) -> str:
    """One that an index takes, here and there."""
    while len(found := value(chance, type_name, most, moods)) > KEY_CHARACTERS:
        pass
    return found


def value(chance: random.Random, type_name: str, most: int = 1_000_000, moods: Sequence[str] = ("sad", "ok")) -> str:
    """Without a modifier, as format_type names it; text for a type that is not known here."""
    if found := _MADE.get(type_name):
        return literal(found(chance, most))
    if type_name == "types.mood":
        return literal(chance.choice(moods))
    if fixed := _FIXED.get(type_name):
        if chance.random() < _OWN.get(type_name, 0.0):
            return literal(_own(chance, type_name, most))
        return literal(chance.choice(fixed))
    return literal(chance.choice(_TEXTS)[:5])


_OWN = {"bytea": 0.6, "timestamp with time zone": 0.8, "numeric": 0.5, "date": 0.8, "text[]": 0.4, "real": 0.3}
"""How often a type's value is one that no other row has, or a long one."""


def _own(chance: random.Random, type_name: str, most: int) -> str:
    number = chance.randrange(1, most)
    if type_name == "bytea":
        return "\\x" + chance.randbytes(chance.choice((4, 8, 2_500))).hex()
    if type_name == "text[]":
        return "{" + ",".join(_random_text(chance, 60) for _ in range(chance.choice((2, 60)))) + "}"
    if type_name == "date":
        return f"{number % 9000 + 1:04}-{number % 12 + 1:02}-{number % 28 + 1:02}"
    if type_name == "timestamp with time zone":
        return f"2024-01-01 00:00:{number % 60:02}.{number:06}+00"
    return f"{number}.{number % 100:02}"


def _random_text(chance: random.Random, length: int) -> str:
    return chance.randbytes(length // 2 + 1).hex()[:length]


def _text(chance: random.Random, most: int) -> str:
    length = chance.choice((0, 0, 0, 9, 9, 40, 70, 2_500, 6_000))
    return _random_text(chance, length) if length else chance.choice(_TEXTS)


def _json(chance: random.Random, most: int) -> str:
    return chance.choice((*_JSON, *_LOOSE, json.dumps({"long": _random_text(chance, 3_000)})))


def _jsonb(chance: random.Random, most: int) -> str:
    return chance.choice((*_JSON, json.dumps({"n": chance.randrange(most)}), json.dumps([_random_text(chance, 3_000)])))


_MADE: Mapping[str, Callable[[random.Random, int], str]] = {
    "smallint": lambda chance, most: str(chance.randint(-32_768, 32_767)),
    "integer": lambda chance, most: str(chance.randint(1, most)),
    "bigint": lambda chance, most: str(chance.choice((chance.randint(1, most), 2**63 - 1, -(2**63)))),
    "types.positive": lambda chance, most: str(chance.randint(1, most)),
    "uuid": lambda chance, most: _random_text(chance, 32),
    "text": _text,
    "types.mail": _text,
    "character varying": lambda chance, most: chance.choice(
        (*(text[:5] for text in _TEXTS), str(chance.random())[2:7])
    ),
    "json": _json,
    "jsonb": _jsonb,
    "types.doc": _jsonb,
    "name": lambda chance, most: chance.choice(("name", 'na"me', "x" * 63)),
}
