"""Writes changes as wal2json 2.5 does in format version 1, byte for byte; tests compare with the plugin itself.

One difference: if a type's name makes wal2json write invalid JSON (`"Other schema"."T"`), it is a JSON string here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from orjson import dumps

from pipeline.errors import DecodeError
from pipeline.wal.encoding import BOOL, FLOAT4, FLOAT8, INT2, INT4, INT8, NUMERIC, OID, as_is, string
from pipeline.wal.messages import UNCHANGED, DeleteMessage, InsertMessage, RelationMessage, Row, UpdateMessage, Value
from pipeline.wal.tuples import NINE, PLAIN, RowTemplates, TupleWriter

BYTEA = 17
NEW_ROWS = {ord("I"): b"insert", ord("U"): b"update"}
"""Type bytes of the messages that bring a new row, and wal2json's name of such a change."""


def _bool(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _number(value: bytes) -> bytes:
    # NaN and ±Infinity end in a letter.
    return b"null" if value[-1] > NINE else value


def _hex(value: bytes) -> bytes:
    return b'"' + value[2:] + b'"'


_WRITERS: dict[int, Callable[[bytes], bytes]] = {
    BOOL: _bool,
    INT2: as_is,
    INT4: as_is,
    INT8: as_is,
    OID: as_is,
    FLOAT4: _number,
    FLOAT8: _number,
    NUMERIC: _number,
    BYTEA: _hex,
}
"""The functions that write values, by the oid of their type; values of other types, and of domains, become JSON
strings.
"""


def value_writer(type_oid: int) -> Callable[[bytes], bytes]:
    """Return the function that writes values of a type, from the text that Postgres prints."""
    return _WRITERS.get(type_oid, string)


def type_name(name: str) -> bytes:
    """Return the text of format_type as JSON: wal2json mistakes the quotes of a quoted name for those of a string."""
    if name.startswith('"') and not name.endswith("]") and _is_json(name):
        return name.encode()
    return dumps(name)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class ChangeWriter:
    """Writes the changes of one relation, each an item of a frame's `change`."""

    def __init__(self, relation: RelationMessage, types: Sequence[str]) -> None:
        """`types`: the types of the relation's columns, as format_type names them."""
        self._columns = range(len(relation.columns))
        self._names = [dumps(column.name) for column in relation.columns]
        self._types = [type_name(name) for name in types]
        self._writers = [_WRITERS.get(column.type_oid, string) for column in relation.columns]
        self._key = [i for i, column in enumerate(relation.columns) if column.key]
        named = b'"schema":' + dumps(relation.schema) + b',"table":' + dumps(relation.name)
        self._heads = {kind: b'{"kind":"' + kind + b'",' + named + b"," for kind in (b"insert", b"update", b"delete")}
        self.named = b"{" + named + b"}"
        """The relation as a truncation lists it."""
        self.new_row = {
            kind: _NewRows(self, relation, name, () if name == b"insert" else self._key).encode
            for kind, name in NEW_ROWS.items()
        }
        """By type byte, the function that writes a change without an old row, from the TupleData at an offset.

        It returns None if the change must be decoded.
        """

    def change(self, change: InsertMessage | UpdateMessage | DeleteMessage) -> bytes:
        """Write a change of a row. Raises DecodeError for a row of another width."""
        if isinstance(change, InsertMessage):
            return self._insert(change)
        return self._update(change) if isinstance(change, UpdateMessage) else self._delete(change)

    def _insert(self, change: InsertMessage) -> bytes:
        return self._heads[b"insert"] + self._row(change.new) + b"}"

    def _update(self, change: UpdateMessage) -> bytes:
        old = change.old
        if old is None:
            self._require_width(change.new)
            old = [change.new[i] if i in self._key else None for i in self._columns]
        return self._heads[b"update"] + self._row(change.new) + b"," + self._old(old) + b"}"

    def _delete(self, change: DeleteMessage) -> bytes:
        return self._heads[b"delete"] + self._old(change.old) + b"}"

    def _row(self, row: Row) -> bytes:
        """Write a row without columns that were TOASTed and did not change."""
        return self._lists(row, b"column", [i for i, value in enumerate(row) if value is not UNCHANGED])

    def _old(self, row: Row) -> bytes:
        present = [i for i, value in enumerate(row) if isinstance(value, bytes)]
        return b'"oldkeys":{' + self._lists(row, b"key", present) + b"}"

    def _lists(self, row: Row, what: bytes, columns: Sequence[int]) -> bytes:
        self._require_width(row)
        return self.names_and_types(what, columns) + b",".join([self._value(i, row[i]) for i in columns]) + b"]"

    def names_and_types(self, what: bytes, columns: Iterable[int]) -> bytes:
        """Return the names and types of these columns, and the beginning of their values. `what`: `column` or `key`."""
        names, types = (b",".join([texts[i] for i in columns]) for texts in (self._names, self._types))
        return b'"%bnames":[%b],"%btypes":[%b],"%bvalues":[' % (what, names, what, types, what)

    def head(self, kind: bytes) -> bytes:
        """Return the beginning of a change."""
        return self._heads[kind]

    def _value(self, column: int, value: Value) -> bytes:
        return self._writers[column](value) if isinstance(value, bytes) else b"null"

    def _require_width(self, row: Row) -> None:
        if len(row) != len(self._columns):
            raise DecodeError(f"a row of {len(row)} columns for a relation of {len(self._columns)}")


class _NewRows(TupleWriter[bytes]):
    """Writes new rows of one relation and kind. `key_columns`: for an update, the columns that are written again as
    key.
    """

    def __init__(
        self, writer: ChangeWriter, relation: RelationMessage, kind: bytes, key_columns: Sequence[int] = ()
    ) -> None:
        columns = relation.columns
        super().__init__(len(columns))
        self._writer = writer
        self._kind = kind
        self._key_columns = key_columns
        self._oids = [column.type_oid for column in columns]
        self._strings = [i for i, oid in enumerate(self._oids) if oid not in _WRITERS and oid not in PLAIN]
        self._other_writers = [
            (i, _WRITERS[oid]) for i, oid in enumerate(self._oids) if _WRITERS.get(oid, as_is) is not as_is
        ]
        self._full = self._template(())
        self._templates = RowTemplates(self._template)

    def _write(self, row: Row, nulls: tuple[int, ...]) -> bytes:
        for i in self._strings:
            if (value := row[i]) is not None:
                row[i] = dumps(value.decode())  # type: ignore[union-attr]
        for i, write in self._other_writers:
            if (value := row[i]) is not None:
                row[i] = write(value)  # type: ignore[arg-type]
        if self._key_columns:
            row += [row[i] for i in self._key_columns]
        if nulls:
            pieces = self._templates[nulls].copy()
            pieces[1::2] = [value for value in row if value is not None]  # type: ignore[misc]
        else:
            pieces = self._full.copy()
            pieces[1::2] = row  # type: ignore[assignment]
        return b"".join(pieces)

    def _template(self, nulls: tuple[int, ...]) -> list[bytes]:
        names_and_types = self._writer.names_and_types
        template = [self._writer.head(self._kind) + names_and_types(b"column", range(self._width))]
        self._add_values(template, range(self._width), nulls)
        if self._kind == b"update":
            present = [i for i in self._key_columns if i not in nulls]
            template[-1] += b',"oldkeys":{' + names_and_types(b"key", present)
            self._add_values(template, present, nulls)
            template[-1] += b"}"
        template[-1] += b"}"
        return template

    def _add_values(self, template: list[bytes], columns: Iterable[int], nulls: tuple[int, ...]) -> None:
        """Add the places of these values to the template, and the texts around them."""
        for place, i in enumerate(columns):
            template[-1] += b"," if place else b""
            if i in nulls:
                template[-1] += b"null"
            else:
                quote = b'"' if self._oids[i] in PLAIN else b""
                template[-1] += quote
                template += [b"", quote]
        template[-1] += b"]"
