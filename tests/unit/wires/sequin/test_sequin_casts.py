"""Values as Sequin's clients know them: each type's JSON, what stays a text, and rows as their table was then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.wires.sequin import casts
from pipeline.wires.sequin.row_cast import RowCast

CASTS = [
    ("boolean[]", "{t,f,NULL}", "[true,false,null]"),
    ("integer[]", "{1,-2,NULL}", "[1,-2,null]"),
    ("bigint[]", "{9007199254740993}", "[9007199254740993]"),
    ("real", "1", "1.0"),
    ("double precision", "0.0000001", "1e-07"),
    ("double precision", "-0", "-0.0"),
    ("double precision", "NaN", '"NaN"'),
    ("double precision", "-Infinity", '"-Infinity"'),
    ("numeric", "1.10", '"1.10"'),
    ("numeric", "-0.00000010", '"-1.0E-7"'),
    ("numeric", "0.000001", '"0.000001"'),
    ("numeric", "NaN", '"NaN"'),
    ("numeric[]", "{{1.0,NULL},{2,-3.50}}", '[["1.0",null],["2","-3.50"]]'),
    ("timestamp without time zone", "2024-02-29 12:34:56", '"2024-02-29T12:34:56.000000"'),
    ("timestamp without time zone", "2024-02-29 12:34:56.7", '"2024-02-29T12:34:56.700000"'),
    ("timestamp without time zone", "0044-03-15 12:00:00 BC", '"0044-03-15 12:00:00 BC"'),
    ("timestamp without time zone", "294276-12-31 23:59:59.999999", '"294276-12-31 23:59:59.999999"'),
    ("timestamp with time zone", "2024-02-29 12:34:56.000001+00", '"2024-02-29T12:34:56.000001Z"'),
    ("timestamp with time zone", "infinity", '"infinity"'),
    (
        "timestamp with time zone[]",
        '{"2024-01-01 00:00:00+00",-infinity}',
        '["2024-01-01T00:00:00.000000Z","-infinity"]',
    ),
    ("interval", "-1 mons +1 day -00:00:00.000001", '{"months":-1,"days":1,"microseconds":-1}'),
    ("interval", "1 year 2 mons -3 days +04:05:06.7", '{"months":14,"days":-3,"microseconds":14706700000}'),
    ("interval", "-1 years", '{"months":-12,"days":0,"microseconds":0}'),
    ("interval", "00:00:00", '{"months":0,"days":0,"microseconds":0}'),
    ("interval", "2562047788:00:54.775807", '{"months":0,"days":0,"microseconds":9223372036854775807}'),
    ("interval", "infinity", '"infinity"'),
    (
        "interval[]",
        '{"1 day",00:00:01}',
        '[{"months":0,"days":1,"microseconds":0},{"months":0,"days":0,"microseconds":1000000}]',
    ),
    ("text[]", r'{a,"b\"c","NULL",NULL,"","{x,y}","a\\b",ä}', '["a","b\\"c","NULL",null,"","{x,y}","a\\\\b","ä"]'),
    ("text[]", "{}", "[]"),
    ("integer[]", "[0:1][-3:-3]={{1},{NULL}}", "[[1],[null]]"),
    ("box[]", "{(2,2),(1,1);(0,0),(-1,-1);NULL}", '["(2,2),(1,1)","(0,0),(-1,-1)",null]'),
    ("jsonb[]", r'{"{\"a\": [1, null]}","null",NULL}', '[{"a": [1, null]},null,null]'),
    ("public.mood[]", '{sad,"so so"}', '["sad","so so"]'),
    ("public.vector", "[1,-2.5,3e-07]", "[1.0,-2.5,3e-07]"),
]


@pytest.mark.parametrize(("type_name", "text", "expected"), CASTS)
def test_each_type_has_its_form(type_name: str, text: str, expected: str) -> None:
    cast = casts.of_type(type_name)
    assert cast is not None
    assert cast(text) == expected
    json.loads(expected)


@pytest.mark.parametrize(
    "type_name", ["text", "date", "time with time zone", "uuid", "money", "int4range", "public.mood"]
)
def test_what_stays_a_text_has_no_cast(type_name: str) -> None:
    assert casts.of_type(type_name) is None


def columns(**types: str) -> list[dict[str, Any]]:
    oids = {"json": 114, "jsonb": 3802}
    return [{"name": name, "type_name": of, "base_type_oid": oids.get(of, 0)} for name, of in types.items()]


def test_a_row_without_a_version_is_as_it_is() -> None:
    record = '{"at": "2024-01-01 00:00:00", "amount": 1.10}'
    assert RowCast().row(record) == record


def test_columns_are_cast_and_others_keep_every_digit() -> None:
    cast = RowCast(columns(n="numeric", big="bigint", ok="boolean", doc="jsonb"), ["big"])
    record = '{"n": 1.10, "ok": true, "big": 9007199254740993, "doc": {"x": 1.10, "y": "}"}, "other \\"one\\"": null}'
    assert cast.row(record) == (
        '{"n": "1.10", "ok": true, "big": 9007199254740993, "doc": {"x": 1.10, "y": "}"}, "other \\"one\\"": null}'
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"doc": {"n": 1}, "n": 2}', '{"doc": {"n": 1}, "n": "2"}'),
        ('{"doc": [{"n": 1}, "}, \\"n\\": 1"], "n": 2}', '{"doc": [{"n": 1}, "}, \\"n\\": 1"], "n": "2"}'),
        ('{"t": "{\\"n\\": 1, \\"n\\": 1}", "n": 2}', '{"t": "{\\"n\\": 1, \\"n\\": 1}", "n": "2"}'),
        ('{"x\\"n": 1, "n": 2, "nn": 3}', '{"x\\"n": 1, "n": "2", "nn": 3}'),
        ('{"t": "n", "n": 2}', '{"t": "n", "n": "2"}'),
        ('{"a\\tb": 1, "\\u001f": 1, "ä😀.*": 1}', '{"a\\tb": "1", "\\u001f": "1", "ä😀.*": "1"}'),
    ],
)
def test_only_names_of_columns_are_found(record: str, expected: str) -> None:
    types = {"doc": "jsonb", "t": "text"} | dict.fromkeys(("n", "a\tb", "\x1f", "ä😀.*"), "numeric")
    assert RowCast(columns(**types)).row(record) == expected


def test_nulls_stay_nulls() -> None:
    cast = RowCast(columns(n="numeric", at="timestamp with time zone", tags="text[]"))
    assert cast.row('{"n": null, "at": null, "tags": null}') == '{"n": null, "at": null, "tags": null}'


def test_a_document_that_jsonb_does_not_give_back_is_as_it_was_written() -> None:
    exact = json.dumps({"doc": '{"b": 1,  "a": "\\u0000"}', "null": "null"})
    record = '{"id": 1, "doc": {"a": 1}, "null": null}'
    assert (
        RowCast(columns(doc="json")).row(record, exact) == '{"id": 1, "doc": {"b": 1,  "a": "\\u0000"}, "null": null}'
    )


def test_a_domain_is_what_it_is_over() -> None:
    domains: list[dict[str, Any]] = [
        {"name": "n", "type_name": "public.positive", "domain_of": "integer"},
        {"name": "list", "type_name": "public.integers", "domain_of": "integer[]"},
        {"name": "doc", "type_name": "public.document", "domain_of": "jsonb", "base_type_oid": 3802},
        {"name": "old", "type_name": "public.positive"},
    ]
    record = '{"n": "1", "list": "{1,NULL}", "doc": "text", "old": "1"}'
    assert RowCast(domains).row(record) == '{"n": 1, "list": [1,null], "doc": "text", "old": "1"}'


@pytest.mark.parametrize(
    ("key", "record_pk", "record", "expected"),
    [
        (["id"], "7", '{"id": 7}', ["7"]),
        (["id"], "[1, 2]", '{"id": "[1, 2]"}', ["[1, 2]"]),
        ([], "", "{}", []),
        (["a", "b", "c"], '[1,"x,y",true]', '{"a": 1, "b": "x,y", "c": true, "d": 5}', ["1", "x,y", "t"]),
        (["id"], "sha256:00", '{"id": "long"}', ["long"]),
        (["a", "b"], "sha256:00", '{"b": "long", "a": 1.50}', ["1.50", "long"]),
    ],
)
def test_the_key_is_a_list_of_texts(key: list[str], record_pk: str, record: str, expected: list[str]) -> None:
    assert RowCast((), key).record_pks(record_pk, record) == expected
