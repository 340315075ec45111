"""Rows of one table version as Sequin's clients know them: which columns are cast, and which are the key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orjson import dumps, loads

from pipeline.api.wires.sequin import casts
from pipeline.api.wires.sequin.casts import Cast
from pipeline.wal import record_text

_HASHED = "sha256:"


class RowCast:
    """Casts the rows of a table version. Without one, as for legacy events, values stay as they are."""

    def __init__(self, columns: Sequence[Mapping[str, Any]] = (), key: Sequence[str] = ()) -> None:
        """`columns`, `key`: as `pipeline.relations` has them."""
        found = {column["name"]: _of_column(column) for column in columns}
        self._casts = {name: cast for name, cast in found.items() if cast is not None}
        self._key = tuple(key)

    def row(self, record: str, exact: str | None = None) -> str:
        """`record`, or `changes`, as JSON. Both arguments are texts that Postgres prints for jsonb."""
        texts: dict[str, str] = loads(exact) if exact else {}
        if not texts and not self._casts:
            return record
        written = [f"{dumps(name).decode()}:{self._value(name, value, texts)}" for name, value in self._values(record)]
        return f"{{{','.join(written)}}}"

    def record_pks(self, record_pk: str, record: str) -> list[str]:
        """The key's values, each as its text."""
        if len(self._key) < 2 and not record_pk.startswith(_HASHED):
            return [record_pk] if record_pk else []
        texts = {name: _text(value) for name, value in self._values(record)}
        return [texts.get(name, "") for name in self._key] or [record_pk]

    def _value(self, name: str, value: str, texts: Mapping[str, str]) -> str:
        if name in texts:  # a document that jsonb would not give back
            return texts[name]
        cast = self._casts.get(name)
        if cast is None or value[0] in "ntf{[":
            return value
        return cast(record_text.string(value) if value[0] == '"' else value)

    @staticmethod
    def _values(record: str) -> list[tuple[str, str]]:
        return list(record_text.values(record)) if record.startswith("{") else []


def _of_column(column: Mapping[str, Any]) -> Cast | None:
    return casts.of_column(column.get("type_name", ""), column.get("domain_of", ""))


def _text(value: str) -> str:
    """A value of `record` as Postgres prints it."""
    if value[0] == '"':
        return record_text.string(value)
    return {"true": "t", "false": "f"}.get(value, value)
