"""Changes as wal2json writes them: what it does with each kind of value and row was tried with the plugin itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import DecodeError
from pipeline.wal.encoding import BOOL, FLOAT8, INT4, JSON, NUMERIC
from pipeline.wal.messages import (
    UNCHANGED,
    DeleteMessage,
    InsertMessage,
    RelationColumn,
    RelationMessage,
    Row,
    UpdateMessage,
)
from pipeline.wal.wal2json import BYTEA, ChangeWriter, type_name

TEXT, DATE, UUID = 25, 1082, 2950
NAMES = {BOOL: "boolean", INT4: "integer", NUMERIC: "numeric(5,2)", FLOAT8: "double precision", TEXT: "text"}

TYPE_OF_TYPES: dict[int, st.SearchStrategy[bytes]] = {
    BOOL: st.sampled_from([b"t", b"f"]),
    INT4: st.integers(-(2**31), 2**31 - 1).map(lambda n: str(n).encode()),
    NUMERIC: st.sampled_from([b"1.50", b"NaN", b"-Infinity", b"9" * 300]),
    FLOAT8: st.sampled_from([b"-0", b"1e-07", b"Infinity", b"-Infinity", b"NaN"]),
    BYTEA: st.binary().map(lambda value: b"\\x" + value.hex().encode()),
    JSON: st.sampled_from([b"null", b'{"a": 1}', rb'"\u0000"', b'["' + b"x" * 400 + b'"]']),
    TEXT: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(str.encode)
    | st.sampled_from([b"", b't"', b"t\\", b"tttt", b"x" * 255, b"x" * 256, b"y" * 70_000]),
    DATE: st.sampled_from([b"2024-02-29", b"infinity", b"0044-03-15 BC"]),
    UUID: st.uuids().map(lambda u: str(u).encode()),
}
CELLS = st.sampled_from(list(TYPE_OF_TYPES)).flatmap(
    lambda oid: st.tuples(st.just(oid), st.none() | TYPE_OF_TYPES[oid])
)


def relation(*columns: tuple[str, int], key: Sequence[int] = (0,), name: str = "t") -> RelationMessage:
    made = tuple(RelationColumn(i in key, column, oid, -1) for i, (column, oid) in enumerate(columns))
    return RelationMessage(1, "public", name, "d", made)


def writer(*columns: tuple[str, int], key: Sequence[int] = (0,)) -> ChangeWriter:
    return ChangeWriter(relation(*columns, key=key), [NAMES.get(oid, str(oid)) for _, oid in columns])


def tuple_data(values: Sequence[bytes | None]) -> bytes:
    columns = (b"n" if value is None else b"t" + pack(">I", len(value)) + value for value in values)
    return pack(">H", len(values)) + b"".join(columns)


PAIR = writer(("id", INT4), ("name", TEXT))


def test_an_insert() -> None:
    assert PAIR.change(InsertMessage(1, [b"7", b'a "b"\n'])) == (
        b'{"kind":"insert","schema":"public","table":"t","columnnames":["id","name"],'
        b'"columntypes":["integer","text"],"columnvalues":[7,"a \\"b\\"\\n"]}'
    )


def test_an_update_names_its_key_even_where_it_came_without_an_old_row() -> None:
    assert PAIR.change(UpdateMessage(1, None, False, [b"7", None])) == (
        b'{"kind":"update","schema":"public","table":"t","columnnames":["id","name"],'
        b'"columntypes":["integer","text"],"columnvalues":[7,null],'
        b'"oldkeys":{"keynames":["id"],"keytypes":["integer"],"keyvalues":[7]}}'
    )


def test_an_old_row_is_named_without_what_was_null() -> None:
    change = PAIR.change(UpdateMessage(1, [b"6", None], True, [b"7", b"x"]))
    assert change.endswith(b',"oldkeys":{"keynames":["id"],"keytypes":["integer"],"keyvalues":[6]}}')
    all_null = PAIR.change(UpdateMessage(1, [None, None], True, [b"7", b"x"]))
    assert all_null.endswith(b',"oldkeys":{"keynames":[],"keytypes":[],"keyvalues":[]}}')


def test_a_delete() -> None:
    assert PAIR.change(DeleteMessage(1, [b"7", b"x"], True)) == (
        b'{"kind":"delete","schema":"public","table":"t",'
        b'"oldkeys":{"keynames":["id","name"],"keytypes":["integer","text"],"keyvalues":[7,"x"]}}'
    )


def test_an_unchanged_column_is_left_out_with_its_name_and_type() -> None:
    change = json.loads(PAIR.change(UpdateMessage(1, None, False, [b"7", UNCHANGED])))
    assert (change["columnnames"], change["columntypes"], change["columnvalues"]) == (["id"], ["integer"], [7])


@pytest.mark.parametrize(
    ("oid", "text", "written"),
    [
        (BOOL, b"t", b"true"),
        (BOOL, b"f", b"false"),
        (INT4, b"-7", b"-7"),
        (20, b"9007199254740993", b"9007199254740993"),
        (26, b"4294967295", b"4294967295"),
        (NUMERIC, b"12.340", b"12.340"),
        (NUMERIC, b"NaN", b"null"),
        (NUMERIC, b"-Infinity", b"null"),
        (FLOAT8, b"-0", b"-0"),
        (FLOAT8, b"1e+300", b"1e+300"),
        (FLOAT8, b"Infinity", b"null"),
        (BYTEA, b"\\xdead", b'"dead"'),
        (BYTEA, b"\\x", b'""'),
        (JSON, b'{"a": 1}', b'"{\\"a\\": 1}"'),
        (790, b"$5.00", b'"$5.00"'),
        (1042, b"a  ", b'"a  "'),
        (1007, b"{1,NULL}", b'"{1,NULL}"'),
        (99_999, b"5", b'"5"'),
    ],
)
def test_values(oid: int, text: bytes, written: bytes) -> None:
    one = writer(("c", oid))
    assert one.change(InsertMessage(1, [text])).endswith(b'"columnvalues":[' + written + b"]}")


def test_a_string_is_escaped_as_postgres_escapes_it() -> None:
    """escape_json in src/backend/utils/adt/json.c."""
    names = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
    for code in range(1, 256):
        escaped = f"\\{names[code]}" if code in names else f"\\u{code:04x}" if code < 32 else chr(code)
        row = PAIR.change(InsertMessage(1, [b"1", chr(code).encode()]))
        assert row.endswith(f'[1,"{escaped}"]}}'.encode()), code


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("integer", '"integer"'),
        ("numeric(12,3)", '"numeric(12,3)"'),
        ('"Mixed"', '"Mixed"'),
        ('"char"', '"char"'),
        ('"Mixed"[]', r'"\"Mixed\"[]"'),
        ('public."Mixed"', r'"public.\"Mixed\""'),
        (r'"b\b"', r'"b\b"'),
        ('"Other schema"."T"', r'"\"Other schema\".\"T\""'),
        ('"q""q"', r'"\"q\"\"q\""'),
    ],
)
def test_names_of_types(name: str, written: str) -> None:
    assert type_name(name) == written.encode()


def test_names_are_escaped() -> None:
    odd = ChangeWriter(relation(('q c"x', INT4), name='T "t"'), ["integer"])
    assert json.loads(odd.change(InsertMessage(1, [b"1"])))["table"] == 'T "t"'
    assert json.loads(odd.change(InsertMessage(1, [b"1"])))["columnnames"] == ['q c"x']
    assert odd.named == rb'{"schema":"public","table":"T \"t\""}'


def test_a_table_without_columns() -> None:
    assert json.loads(writer(key=()).change(InsertMessage(1, [])))["columnnames"] == []


@pytest.mark.parametrize("row", [[b"1"], [b"1", b"a", b"b"]])
def test_a_row_of_another_width_is_refused(row: Row) -> None:
    with pytest.raises(DecodeError):
        PAIR.change(InsertMessage(1, row))
    with pytest.raises(DecodeError):
        PAIR.change(UpdateMessage(1, None, False, row))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CELLS, max_size=12), st.sets(st.integers(0, 3)))
def test_the_direct_way_writes_the_same(row: list[tuple[int, bytes | None]], key: set[int]) -> None:
    made = writer(*((f'c"{i}', oid) for i, (oid, _) in enumerate(row)), key=sorted(key))
    values: Row = [value for _, value in row]
    data = b"head" + tuple_data([value for _, value in row])
    for _ in range(2):
        assert made.new_row[ord("I")](data, 4) == made.change(InsertMessage(1, values))
        assert made.new_row[ord("U")](data, 4) == made.change(UpdateMessage(1, None, False, values))


@pytest.mark.parametrize("odd", [b"\0\2nu", b"\0\2n", b"\0\3nnn", b"\0\2nt\0\0\0\1\xff", b"\0\2nt\0\0\0\2x", b""])
def test_the_direct_way_leaves_to_the_decoder_what_is_no_row_of_texts(odd: bytes) -> None:
    assert PAIR.new_row[ord("I")](odd, 0) is None
