"""`json_payload`: the values of an event as walstream's clients read them. Pure.

From the text that Postgres prints for jsonb, without parsing values: no digit is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from orjson import dumps, loads

from pipeline.wal import record_text

MAX_BYTES = (4 << 20) - 1024
"""Clients refuse a message above 4 MiB; the rest of it is names."""


class Payload(NamedTuple):
    """Compact JSON with its keys sorted by bytes. `without`: columns that are left out, so that it fits."""

    text: str
    without: tuple[str, ...]


def payload(record: str, exact: str | None) -> Payload:
    """`record` and `exact` of an event, as the texts that Postgres prints."""
    texts: dict[str, str] = loads(exact) if exact else {}
    written = []
    for name, value in record_text.values(record):
        if value[0] in "{[":  # a text, as Postgres prints the column
            value = dumps(texts.get(name, value)).decode()
        written.append((name.encode(), value))
    without: tuple[str, ...] = ()
    if len(record) + sum(map(len, texts.values())) > MAX_BYTES // 6:  # no character takes more bytes
        without = _too_large(written)
        written = [(name, value) for name, value in written if name.decode() not in without]
    written.sort()
    parts = [f"{dumps(name.decode()).decode()}:{value}" for name, value in written]
    return Payload("{" + ",".join(parts) + "}", without)


def _too_large(written: list[tuple[bytes, str]]) -> tuple[str, ...]:
    """The columns with the largest values, as few as must go."""
    sizes = [(len(value.encode()), name) for name, value in written]
    left = 2 + sum(size + 2 * len(name) + 4 for size, name in sizes)
    without = []
    for size, name in sorted(sizes, reverse=True):
        if left <= MAX_BYTES:
            break
        left -= size
        without.append(name.decode())
    return tuple(without)
