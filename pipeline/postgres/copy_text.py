"""COPY's text format (Postgres manual, "COPY", Text Format).

It prints values by the output functions of their types, as the replication stream does. A cast to text prints values
of some types otherwise.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import closing

from psycopg import sql

from pipeline.postgres import copy_data
from pipeline.postgres.connections import AsyncConnection, Connection
from pipeline.wal.messages import Row

_NULL = b"\\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def read_lines(connection: Connection, query: sql.Composable) -> Generator[list[bytes], None, None]:
    """Yield rows as `copy_data.read_rows` does, each without its newline."""
    with closing(copy_data.read_rows(connection, query)) as found:
        for rows in found:
            yield _without_newlines(rows)


async def read_lines_async(connection: AsyncConnection, query: sql.Composable) -> AsyncGenerator[list[bytes], None]:
    """Yield rows as `copy_data.read_rows_async` does, each without its newline."""
    async for rows in copy_data.read_rows_async(connection, query):
        yield _without_newlines(rows)


def _without_newlines(rows: list[memoryview]) -> list[bytes]:
    return [bytes(row[:-1]) for row in rows]


def split_line(line: bytes, width: int) -> Row:
    """Return the values of a row of `width` columns; None stands for NULL."""
    if width == 0:
        return []
    fields = line.split(b"\t")
    if b"\\" in line:
        return [None if each == _NULL else _plain(each) for each in fields]
    return list(fields)


def _plain(field: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: _CHARACTERS.get(found[1], found[1]), field) if b"\\" in field else field
