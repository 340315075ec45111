"""Encodes values as JSON text, only by their type and the text that Postgres prints (docs/reference/types.md).

The text is what a session with SESSION_SETTINGS prints. bool, int2, int4, int8, oid, numeric and float become JSON
scalars if their text is a JSON number; json, jsonb and domains over them are embedded; all others are JSON strings. A
new type goes here; tuples.py has a faster way for rows of some of these types, which is tested equal.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import NamedTuple

from orjson import dumps

from pipeline.errors import DecodeError
from pipeline.wal import server_encoding
from pipeline.wal.jsonb import DEEP_SIZE, is_accepted_by_jsonb, is_too_deep
from pipeline.wal.messages import UNCHANGED, Row, Value
from pipeline.wal.record_key import key_writer

SESSION_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "search_path": "",
}
"""Settings that a session needs, besides client_encoding UTF8, to print values as this module expects."""

BOOL, INT8, INT2, INT4, OID, JSON, FLOAT4, FLOAT8, NUMERIC, JSONB = 16, 20, 21, 23, 26, 114, 700, 701, 1700, 3802

ValueEncoder = Callable[[bytes], bytes]


class EncodedRow(NamedTuple):
    """One row as JSON texts. `exact`: source texts that jsonb may not carry, by column; None if there are none."""

    record_pk: bytes
    record: bytes
    exact: bytes | None
    unchanged: list[str] | None


def _bool(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def as_is(value: bytes) -> bytes:
    return value


def number(value: bytes) -> bytes:
    # NaN and ±Infinity end in a letter; all else that numeric_out and float8out print is a JSON number.
    return value if value[-1] <= 57 else b'"' + value + b'"'


def _float(value: bytes) -> bytes:
    return b'"-0"' if value == b"-0" else number(value)


def string(value: bytes) -> bytes:
    """Return the JSON string of UTF-8 text."""
    return dumps(value.decode())


def _embedded(value: bytes) -> bytes:
    return value if is_accepted_by_jsonb(value) else string(value)


def embedded_jsonb(value: bytes) -> bytes:
    return string(value) if len(value) > DEEP_SIZE and is_too_deep(value) else value


_SCALARS: dict[int, ValueEncoder] = {
    BOOL: _bool,
    INT2: as_is,
    INT4: as_is,
    INT8: as_is,
    OID: as_is,
    NUMERIC: number,
    FLOAT4: _float,
    FLOAT8: _float,
    JSON: _embedded,
    JSONB: embedded_jsonb,
}


def encoder_for(type_oid: int) -> ValueEncoder:
    """Return the function that writes values of a type. For a domain over json or jsonb, pass JSON or JSONB."""
    return _SCALARS.get(type_oid, string)


class RowEncoder:
    """Encodes rows of one relation version.

    `columns`: (name, type oid) in the order of the row, domains over json and jsonb given as those types. `key`:
    indexes of the key columns, in the order of the table's columns.
    """

    def __init__(self, columns: Sequence[tuple[str, int]], key: Sequence[int]) -> None:
        self.columns = tuple(columns)
        self.names = [name for name, _ in columns]
        self._encoders = [encoder_for(oid) for _, oid in columns]
        self._prefixes = [(b"{" if i == 0 else b",") + dumps(name) + b":" for i, name in enumerate(self.names)]
        self._json = [i for i, (_, oid) in enumerate(columns) if oid == JSON]
        self._jsonb = [i for i, (_, oid) in enumerate(columns) if oid == JSONB]
        self.may_need_exact = bool(self._json or self._jsonb)
        self.key = tuple(key)
        self._key_may_need_exact = not {*self._json, *self._jsonb}.isdisjoint(key)
        self._width = len(columns)
        self.key_of = key_writer(self.key, self.value)
        """Returns record_pk of a row."""

    def encode(self, row: Row, old: Row | None = None) -> EncodedRow:
        """Encode a complete row. UNCHANGED values are taken from `old` if it has them; others are left out, and
        named.

        Raises DecodeError for a row of another width than the relation's.
        """
        if len(row) != self._width:
            raise DecodeError(f"a row of {len(row)} columns for a relation of {self._width}")
        if any(value is UNCHANGED for value in row):
            return self._encode_toasted(row, old)
        record = self.object(row, range(self._width))
        return EncodedRow(self.key_of(row), record, self.exact(row, self.deep(row)), None)

    def encode_present(self, row: Row) -> EncodedRow:
        """Encode only the key columns, for an old key (`K`): the row's other values are not in the WAL."""
        present = [i for i in self.key if row[i] is not UNCHANGED]
        record = self.object(row, present)
        exact = None
        if self._key_may_need_exact:
            keys = [value if i in present else None for i, value in enumerate(row)]
            exact = self.exact(keys, self.deep(keys))
        return EncodedRow(self.key_of(row), record, exact, None)

    def changes(self, old: Row, new: Row, *, full: bool) -> bytes:
        """Return the old values of the columns that differ, as a JSON object.

        With a bare key (`K`) only key columns are compared.
        """
        columns = range(len(self.names)) if full else self.key
        changed = [i for i in columns if new[i] is not UNCHANGED and old[i] != new[i] and old[i] is not UNCHANGED]
        return self.object(old, changed)

    def object(self, row: Row, columns: Sequence[int]) -> bytes:
        """Return these columns as a JSON object."""
        return b"{" + b",".join([self._prefixes[i][1:] + self.value(i, row[i]) for i in columns]) + b"}"

    def value(self, column: int, value: Value) -> bytes:
        """Return one value as JSON text; null for NULL and UNCHANGED."""
        return self._encoders[column](value) if isinstance(value, bytes) else b"null"

    def _encode_toasted(self, row: Row, old: Row | None) -> EncodedRow:
        if old is not None:
            row = [old[i] if value is UNCHANGED else value for i, value in enumerate(row)]
        present = [i for i, value in enumerate(row) if value is not UNCHANGED]
        unchanged = [self.names[i] for i, value in enumerate(row) if value is UNCHANGED]
        exact = self.exact(row, self.deep(row))
        return EncodedRow(self.key_of(row), self.object(row, present), exact, unchanged or None)

    def deep(self, row: Row) -> list[int]:
        """Return the jsonb columns whose values are too deep to be embedded."""
        large = [i for i in self._jsonb if isinstance(row[i], bytes) and len(row[i]) > DEEP_SIZE]  # type: ignore[arg-type]
        return [i for i in large if is_too_deep(row[i])]  # type: ignore[arg-type]

    def exact(self, row: Row, deep: Sequence[int] = ()) -> bytes | None:
        """Return json texts that may differ from their jsonb form, JSON nulls, and `deep` jsonb; None if there are
        none.

        The shuffler keeps those that do differ.
        """
        for i in self._jsonb:
            if row[i] == b"null":
                break
        else:
            if not self._json and not deep:
                return None
        kept = [i for i in self._jsonb if row[i] == b"null"] + [i for i in self._json if isinstance(row[i], bytes)]
        kept += deep
        return b"{" + b",".join([self._prefixes[i][1:] + string(row[i]) for i in kept]) + b"}" if kept else None  # type: ignore[arg-type]


def message_record(content: bytes, encoding: str = "UTF8") -> bytes:
    """Return the record of a logical message: its content as text if jsonb accepts that, else as base64.

    Postgres sends the content as it was given (logicalrep_write_message): in the source's `encoding`.
    """
    text = server_encoding.decode_text(content, encoding)
    return _base64(content) if text is None or "\0" in text else dumps({"content": text})


def transaction_annotations(content: bytes, encoding: str = "UTF8") -> bytes | None:
    """Return transaction annotations as JSON text that jsonb accepts; None if the content is not such JSON.

    Content that is not valid in this encoding, or is nested too deeply to be checked, becomes `{"content_base64": …}`.
    """
    text = server_encoding.decode_text(content, encoding)
    if text is None:
        return _base64(content)
    try:
        json.loads(text, parse_int=str)  # int() takes no more than 4,300 digits
    except RecursionError:
        return _base64(content)
    except ValueError:
        return None
    annotations = text.encode()
    return annotations if is_accepted_by_jsonb(annotations) else None


def _base64(content: bytes) -> bytes:
    return dumps({"content_base64": b64encode(content).decode()})
