"""Values as JSON text by type and source text alone (docs/reference/types.md)."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wal import encoding, jsonb
from pipeline.wal.encoding import JSON, JSONB, RowEncoder
from pipeline.wal.messages import UNCHANGED
from pipeline.wal.tuples import TupleEncoder

BOOL, INT4, INT8, TEXT, NUMERIC, FLOAT8, TIMESTAMPTZ, INT4_ARRAY = 16, 23, 20, 25, 1700, 701, 1184, 1007


@pytest.mark.parametrize(
    ("type_oid", "source", "written"),
    [
        (BOOL, b"t", b"true"),
        (BOOL, b"f", b"false"),
        (INT8, b"-9223372036854775808", b"-9223372036854775808"),
        (NUMERIC, b"1.50", b"1.50"),
        (NUMERIC, b"NaN", b'"NaN"'),
        (NUMERIC, b"-Infinity", b'"-Infinity"'),
        (FLOAT8, b"1e-07", b"1e-07"),
        (FLOAT8, b"-0", b'"-0"'),
        (FLOAT8, b"Infinity", b'"Infinity"'),
        (TEXT, b"1", b'"1"'),
        (TEXT, 'a"\\\n\x01é🐘'.encode(), '"a\\"\\\\\\n\\u0001é🐘"'.encode()),
        (TIMESTAMPTZ, b"infinity", b'"infinity"'),
        (INT4_ARRAY, b"{1,NULL}", b'"{1,NULL}"'),
        (JSON, b' {"b" : 1} ', b' {"b" : 1} '),
        (JSONB, b'{"a": [1, 2]}', b'{"a": [1, 2]}'),
        (JSON, b'"\\u0000"', b'"\\"\\\\u0000\\""'),
    ],
)
def test_each_type(type_oid: int, source: bytes, written: bytes) -> None:
    assert encoding.encoder_for(type_oid)(source) == written


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8")))
def test_any_text_is_a_json_string_of_itself(value: str) -> None:
    assert json.loads(encoding.string(value.encode())) == value


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a": "\u0000"}',
        rb'"\ud800"',
        rb'"\udc00"',
        rb'"\ud800\u0041"',
        rb'"\udc00\ud800"',
        b"1e400000",
        b"1e-99999999999",
        b"9" * 140_000,
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_json_that_jsonb_refuses(text: bytes) -> None:
    assert not jsonb.is_accepted_by_jsonb(text)


@pytest.mark.parametrize(
    "text",
    [
        rb'"\\u0000"',
        rb'"\ud83d\udc18"',
        rb'"\\\ud83d\udc18"',
        b"1e1000",
        b'"1e400000"',
        b'"[[["',
        b'"' + b"[" * 9000 + b'"',
    ],
)
def test_json_that_jsonb_takes(text: bytes) -> None:
    assert jsonb.is_accepted_by_jsonb(text)


def test_a_row() -> None:
    encoder = RowEncoder([("id", INT4), ('o"dd', TEXT), ("ok", BOOL), ("none", TEXT)], [0])
    encoded = encoder.encode([b"7", b"x", b"t", None])
    assert json.loads(encoded.record) == {"id": 7, 'o"dd': "x", "ok": True, "none": None}
    assert (encoded.record_pk, encoded.exact, encoded.unchanged) == (b"7", None, None)


def test_a_key_of_several_columns_is_an_array_in_the_order_given() -> None:
    encoder = RowEncoder([("b", TEXT), ("x", TEXT), ("a", INT4)], [2, 0])
    assert encoder.encode([b"k,1", b"-", b"5"]).record_pk == b'[5,"k,1"]'


@pytest.mark.parametrize("length", [2_000, 2_001])
def test_a_long_key_is_its_digest(length: int) -> None:
    key = b"\xc3\xa9" * (length // 2) + b"x" * (length % 2)
    digest = b"sha256:" + sha256(key).hexdigest().encode()
    assert RowEncoder([("a", TEXT)], [0]).encode([key]).record_pk == (key if length == 2_000 else digest)


def test_no_key_and_no_columns() -> None:
    encoder = RowEncoder([], [])
    assert encoder.encode([]) == (b"", b"{}", None, None)


def test_unchanged_values_come_from_the_old_row_or_are_named() -> None:
    encoder = RowEncoder([("id", INT4), ("big", TEXT), ("n", NUMERIC)], [0])
    known = encoder.encode([b"1", UNCHANGED, UNCHANGED], [b"1", b"old", b"2.0"])
    assert json.loads(known.record) == {"id": 1, "big": "old", "n": 2.0}
    assert known.unchanged is None
    unknown = encoder.encode([b"1", UNCHANGED, UNCHANGED])
    assert json.loads(unknown.record) == {"id": 1}
    assert unknown.unchanged == ["big", "n"]


def test_an_old_key_holds_the_key_alone() -> None:
    encoder = RowEncoder([("id", INT4), ("v", TEXT)], [0])
    assert encoder.encode_present([b"3", None]) == (b"3", b'{"id":3}', None, None)


def test_changes_are_the_old_values_of_what_differs() -> None:
    encoder = RowEncoder([("id", INT4), ("v", TEXT), ("w", TEXT)], [0])
    assert encoder.changes([b"1", b"a", None], [b"1", b"b", None], full=True) == b'{"v":"a"}'
    assert encoder.changes([b"1", None, None], [b"2", b"b", None], full=False) == b'{"id":1}'
    assert encoder.changes([b"1", b"a", None], [b"1", UNCHANGED, None], full=True) == b"{}"


def test_exact_keeps_json_texts_and_json_null() -> None:
    encoder = RowEncoder([("j", JSON), ("b", JSONB), ("n", JSONB)], [])
    assert json.loads(encoder.encode([b'{"a":1}', b"null", b"{}"]).exact or b"") == {"j": '{"a":1}', "b": "null"}
    assert encoder.encode([None, b"{}", None]).exact is None


def test_exact_keeps_a_json_null_of_an_old_key() -> None:
    encoder = RowEncoder([("k", JSONB), ("v", JSONB)], [0])
    assert encoder.encode_present([b"null", None]) == (b"null", b'{"k":null}', b'{"k":"null"}', None)
    assert encoder.encode_present([b"{}", None]).exact is None


def test_jsonb_that_is_nested_too_deep_is_a_string_and_in_exact() -> None:
    deep, new = b"[" * 30_000 + b"]" * 30_000, b"\0\1t\0\0\xea\x60"
    encoder = RowEncoder([("d", JSONB)], [])
    assert TupleEncoder(encoder).encode(new + deep, 0) is None, "left to encode"
    encoded = encoder.encode([deep])
    assert json.loads(encoded.record) == json.loads(encoded.exact or b"") == {"d": deep.decode()}


def test_message_contents() -> None:
    assert json.loads(encoding.message_record(b"hi")) == {"content": "hi"}
    assert json.loads(encoding.message_record(b"\xff\x00")) == {"content_base64": "/wA="}
    assert json.loads(encoding.message_record(b"a\0b")) == {"content_base64": "YQBi"}


@pytest.mark.parametrize(
    ("named", "content", "text"),
    [
        ("LATIN1", "Café".encode("latin-1"), "Café"),
        ("LATIN9", "5 €".encode("iso8859-15"), "5 €"),
        ("EUC_JP", "注文".encode("euc_jp"), "注文"),
        ("WIN1251", "Заказ".encode("cp1251"), "Заказ"),
        ("SQL_ASCII", "Café".encode(), "Café"),
        ("EUC_TW", b"plain", "plain"),
    ],
)
def test_messages_are_read_in_the_encoding_of_their_source(named: str, content: bytes, text: str) -> None:
    assert json.loads(encoding.message_record(content, named)) == {"content": text}
    annotations = encoding.transaction_annotations(b'{"by": "' + content + b'"}', named)
    assert annotations is not None and json.loads(annotations) == {"by": text}


@pytest.mark.parametrize(("named", "content"), [("EUC_JP", b"\xff\xfe"), ("SQL_ASCII", b"\xe9"), ("EUC_TW", b"\xa4")])
def test_what_is_no_text_there_is_kept_as_base64(named: str, content: bytes) -> None:
    kept = {"content_base64": b64encode(content).decode()}
    assert json.loads(encoding.message_record(content, named)) == kept
    assert json.loads(encoding.transaction_annotations(content, named) or b"") == kept


def test_annotations_of_many_digits_and_levels_are_kept() -> None:
    long = b'{"n": ' + b"7" * 4_301 + b"}"
    assert encoding.transaction_annotations(long) == long
    deep = b"[" * 1_100 + b"]" * 1_100
    assert json.loads(encoding.transaction_annotations(deep) or b"") == {"content_base64": b64encode(deep).decode()}


def test_annotations_must_be_json() -> None:
    assert encoding.transaction_annotations(b'{"user": 7}') == b'{"user": 7}'
    assert encoding.transaction_annotations(b"{user") is None
    assert encoding.transaction_annotations(rb'"\u0000"') is None
