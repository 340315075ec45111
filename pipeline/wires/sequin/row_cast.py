"""Converts rows of one table version to the form that Sequin's clients expect. Does no IO."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orjson import loads

from pipeline.wal import record_text
from pipeline.wires.sequin import casts
from pipeline.wires.sequin.casts import Cast

_HASHED = "sha256:"
_DOCUMENTS = (114, 3802)
"""The oids of json and jsonb, and the `base_type_oid` of domains over them."""


class _Value(NamedTuple):
    """The range of a value in the text of a record."""

    name: str
    start: int
    end: int


class RowCast:
    """Casts the rows of a table version. Without columns, as for legacy events, values stay as they are."""

    def __init__(self, columns: Sequence[Mapping[str, Any]] = (), key: Sequence[str] = ()) -> None:
        """`columns`, `key`: as in `pipeline.relations`."""
        found = {column["name"]: _of_column(column) for column in columns}
        self._casts = {name: cast for name, cast in found.items() if cast is not None}
        documents = {column["name"] for column in columns if column.get("base_type_oid") in _DOCUMENTS}
        self._printed = {json.dumps(name, ensure_ascii=False)[1:-1]: name for name in {*self._casts, *documents}}
        self._keys = re.compile(f'"({"|".join(map(re.escape, self._printed))})": ')
        self._key = tuple(key)

    def row(self, record: str, exact: str | None = None) -> str:
        """Return `record`, or `changes`, as JSON. Both arguments are texts that Postgres prints for jsonb."""
        texts: dict[str, str] = loads(exact) if exact else {}
        if not texts and not self._casts:
            return record
        written: list[str] = []
        done = 0
        for name, start, end in self._values(record):
            value = self._value(name, record[start:end], texts)
            if value is not None:
                written += record[done:start], value
                done = end
        return "".join([*written, record[done:]])

    def record_pks(self, record_pk: str, record: str) -> list[str]:
        """Return the values of the primary key, each as its text."""
        if len(self._key) < 2 and not record_pk.startswith(_HASHED):
            return [record_pk] if record_pk else []
        texts = {name: _text(value) for name, value in record_text.read_values(record)}
        return [texts.get(name, "") for name in self._key] or [record_pk]

    def _values(self, record: str) -> Iterator[_Value]:
        """Yield the ranges of values that may be cast, and of documents.

        A search finds them, which skips the rest fast.

        Only documents contain names, and are skipped as a whole; in a string each quote follows a backslash.
        """
        at = 0
        while (found := self._keys.search(record, at)) is not None:
            at = found.end()
            if record[found.start() - 1] in "{ ":
                end = record_text.find_end(record, at)
                yield _Value(self._printed[found[1]], at, end)
                at = end

    def _value(self, name: str, value: str, texts: Mapping[str, str]) -> str | None:
        """Return the JSON of a value; None if it stays as it is."""
        if name in texts:  # a document that differs from its jsonb
            return texts[name]
        cast = self._casts.get(name)
        if cast is None or value[0] in "ntf{[":
            return None
        return cast(record_text.read_string(value) if value[0] == '"' else value)


def _of_column(column: Mapping[str, Any]) -> Cast | None:
    return casts.of_column(column.get("type_name") or "", column.get("domain_of") or "")


def _text(value: str) -> str:
    """Return a value of `record` as Postgres prints it."""
    if value[0] == '"':
        return record_text.read_string(value)
    return {"true": "t", "false": "f"}.get(value, value)
