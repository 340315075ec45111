"""COPY's text format (Postgres manual, "COPY", Text Format): it prints values as the stream does, by their output
functions, which a cast to text does not for every type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from psycopg import Copy

from pipeline.wal.messages import Row

_NULL = b"\\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def lines(copy: Copy) -> Iterator[bytes]:
    """The rows of a COPY TO STDOUT, each without its newline: the server sends one in each message."""
    for data in copy:
        yield bytes(data)[:-1]


def values(line: bytes, width: int) -> Row:
    """The values of a row of so many columns; None for NULL."""
    if width == 0:
        return []
    fields = line.split(b"\t")
    if b"\\" in line:
        return [None if each == _NULL else _plain(each) for each in fields]
    return list(fields)


def _plain(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), field) if b"\\" in field else field
