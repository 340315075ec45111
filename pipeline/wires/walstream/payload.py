"""Writes `json_payload`: the values of an event for walstream's clients. Does no IO.

It is built from the text that Postgres prints for jsonb, without parsing values, so no digit is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from orjson import dumps, loads

from pipeline.wal import record_text

MAX_BYTES = (4 << 20) - 1024
"""The limit of a payload: clients refuse a message above 4 MiB, and the rest of a message is names."""


class JsonPayload(NamedTuple):
    """Compact JSON with its keys sorted by bytes. `without`: columns that are left out, so that it fits."""

    text: str
    without: tuple[str, ...]


def payload(record: str, exact: str | None) -> JsonPayload:
    """Return the payload of an event. `record`, `exact`: the texts that Postgres prints."""
    texts: dict[str, str] = loads(exact) if exact else {}
    written = []
    for name, value in record_text.read_values(record):
        if value[0] in "{[":  # a text, as Postgres prints the column
            value = dumps(texts.get(name, value)).decode()
        written.append((name.encode(), value))
    without: tuple[str, ...] = ()
    if len(record) + sum(map(len, texts.values())) > MAX_BYTES // 6:  # no character takes more bytes
        without = _too_large(written)
        written = [(name, value) for name, value in written if name.decode() not in without]
    written.sort()
    parts = [f"{dumps(name.decode()).decode()}:{value}" for name, value in written]
    return JsonPayload("{" + ",".join(parts) + "}", without)


def _too_large(written: list[tuple[bytes, str]]) -> tuple[str, ...]:
    """Return the fewest columns, those with the largest values, without which the payload is small enough."""
    sizes = [(len(value.encode()), name) for name, value in written]
    left = 2 + sum(size + 2 * len(name) + 4 for size, name in sizes)
    without = []
    for size, name in sorted(sizes, reverse=True):
        if left <= MAX_BYTES:
            break
        left -= size
        without.append(name.decode())
    return tuple(without)
