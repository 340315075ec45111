"""Rows straight from pgoutput's bytes are what decoding first and encoding then makes of them."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.wal.encoding import BOOL, FLOAT8, INT4, JSON, JSONB, NUMERIC, RowEncoder
from pipeline.wal.tuples import TupleEncoder

TEXT, DATE, TIMESTAMPTZ, UUID = 25, 1082, 1184, 2950
_TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.sampled_from(["", 't"', "t\\", "n", "tttt", "é" * 130, "x" * 255, "x" * 256, "t" * 700, "y" * 70_000]),
).map(str.encode)
_VALUES: dict[int, st.SearchStrategy[bytes]] = {
    BOOL: st.sampled_from([b"t", b"f"]),
    INT4: st.integers(-(2**31), 2**31 - 1).map(lambda n: str(n).encode()),
    NUMERIC: st.sampled_from([b"1.50", b"NaN", b"-Infinity", b"9" * 300]),
    FLOAT8: st.sampled_from([b"-0", b"1e-07", b"Infinity"]),
    JSON: st.sampled_from([b"null", b'{"a": 1}', rb'"\u0000"', b'["' + b"x" * 400 + b'"]']),
    JSONB: st.sampled_from([b"null", b"{}", b'{"a": "' + b"x" * 400 + b'"}']),
    TEXT: _TEXTS,
    DATE: st.sampled_from([b"2024-02-29", b"infinity", b"0044-03-15 BC"]),
    TIMESTAMPTZ: st.sampled_from([b"2024-02-29 12:00:00.000001+00", b"-infinity"]),
    UUID: st.uuids().map(lambda u: str(u).encode()),
}
_COLUMN = st.sampled_from(list(_VALUES)).flatmap(lambda oid: st.tuples(st.just(oid), st.none() | _VALUES[oid]))


def _tuple(values: list[bytes | None]) -> bytes:
    columns = (b"n" if value is None else b"t" + pack(">I", len(value)) + value for value in values)
    return pack(">H", len(values)) + b"".join(columns)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_COLUMN, max_size=12), st.sets(st.integers(0, 3)))
def test_every_row_is_as_the_row_encoder_writes_it(row: list[tuple[int, bytes | None]], key: set[int]) -> None:
    columns = [(f'c"{i}', oid) for i, (oid, _) in enumerate(row)]
    encoder = RowEncoder(columns, sorted(i for i in key if i < len(row)))
    fast = TupleEncoder(encoder)
    values = [value for _, value in row]
    for _ in range(2):
        assert fast.encode(b"head" + _tuple(values), 4) == tuple(encoder.encode(list(values)))


@given(st.lists(_VALUES[TEXT] | st.none(), min_size=1, max_size=4))
def test_a_torn_row_is_left_to_the_decoder(values: list[bytes | None]) -> None:
    encoder = TupleEncoder(RowEncoder([(f"c{i}", TEXT) for i in range(len(values))], [0]))
    whole = _tuple(values)
    for cut in {0, 1, 2, 3, len(whole) // 2, len(whole) - 1} - {len(whole)}:
        assert encoder.encode(whole[:cut], 0) is None
    assert encoder.encode(whole + b"n", 0) is None


@pytest.mark.parametrize("odd", [b"\0\1u", b"\0\1b\0\0\0\1x", b"\0\2nn", b"\0\1t\0\0\0\1\xff", b"\0\1t\0\0\0\2x"])
def test_what_is_no_text_is_left_to_the_decoder(odd: bytes) -> None:
    assert TupleEncoder(RowEncoder([("c", TEXT)], [])).encode(odd, 0) is None


def test_a_value_that_reads_like_the_next_column_is_one_value() -> None:
    value = b"a" + b"t\0\0\0\1" + b"b"  # text never holds NUL; if it did, nothing would be read wrongly
    found = TupleEncoder(RowEncoder([("c", TEXT)], [0])).encode(_tuple([value]), 0)
    assert found is None


def test_more_sets_of_null_columns_than_are_kept() -> None:
    encoder = RowEncoder([(f"c{i}", DATE) for i in range(8)], [])
    fast = TupleEncoder(encoder)
    for mask in range(256):
        values = [b"2024-01-01" if mask >> i & 1 else None for i in range(8)]
        assert fast.encode(_tuple(values), 0) == tuple(encoder.encode(list(values)))
