"""json_payload: every value as it is, keys sorted by bytes, no digit lost, and never too large for a client."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.wires.walstream import payload
from pipeline.wires.walstream.payload import JsonPayload

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.decimals(-(10**20), 10**20, places=12),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)


def printed(value: Any) -> str:
    """As Postgres prints jsonb."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{printed(name)}: {printed(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(printed, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


@settings(max_examples=40)
@given(st.dictionaries(NAMES, NESTED, max_size=8))
def test_values_are_those_of_the_record(record: dict[str, Any]) -> None:
    found = payload.payload(printed(record), None)
    read = json.loads(found.text, parse_float=Decimal)
    assert list(read) == sorted(record, key=str.encode)
    for name, value in record.items():
        expected = printed(value) if isinstance(value, list | dict) else value
        assert read[name] == expected
        assert type(read[name]) is type(expected) or isinstance(value, Decimal)
    assert found.without == ()


def test_what_walstream_guessed_is_not_guessed() -> None:
    record = '{"a": "007", "t": true, "n": 1.10, "big": 9007199254740993, "text": "t", "none": null, "e": 1e5}'
    assert payload.payload(record, None).text == (
        '{"a":"007","big":9007199254740993,"e":1e5,"n":1.10,"none":null,"t":true,"text":"t"}'
    )


def test_a_json_column_is_the_text_that_postgres_prints() -> None:
    record = '{"j": {"a": 1}, "k": [1, 2], "s": "x"}'
    exact = json.dumps({"j": '{ "a":1,  "a":1 }', "s": '"x"'})
    assert json.loads(payload.payload(record, exact).text) == {"j": '{ "a":1,  "a":1 }', "k": "[1, 2]", "s": "x"}


def test_deep_nesting_is_no_recursion() -> None:
    deep = "[" * 5_000 + "]" * 5_000
    assert json.loads(payload.payload(f'{{"d": {deep}, "z": 1}}', None).text) == {"d": deep, "z": 1}


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\\n"])
def test_what_is_too_large_goes_without_its_largest_values(character: str) -> None:
    large = character * (3_000_000 // len(character.encode()))
    small = character * 500
    found = payload.payload(f'{{"b": "{large}", "a": "{large[:-8]}", "id": 7, "small": "{small}"}}', None)
    assert found.without == ("b",)
    assert len(found.text.encode()) <= payload.MAX_BYTES
    assert set(json.loads(found.text)) == {"a", "id", "small"}


def test_what_fits_exactly_stays() -> None:
    rest = len('{"v":""}')
    fits = "x" * (payload.MAX_BYTES - rest - 4)
    assert payload.payload(f'{{"v": "{fits}"}}', None) == JsonPayload(f'{{"v":"{fits}"}}', ())
    assert payload.payload(f'{{"v": "{fits}xxxxxxxxx"}}', None) == JsonPayload("{}", ("v",))
