"""Reads the values of a record in the text that Postgres prints for jsonb, without parsing them: no digit is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]

_SCALAR = re.compile(r"[^,{}\[\]\s]+")
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def read_values(record: str) -> Iterator[tuple[str, str]]:
    """Yield names and JSON texts of an object's values, in its order."""
    at, end = 1, len(record) - 1
    while at < end:
        name, at = scanstring(record, at + 1)
        at += 2  # ": "
        start, at = at, find_end(record, at)
        yield name, record[start:at]
        at += 2  # ", "


def read_string(value: str) -> str:
    """Return the text of a JSON string."""
    return str(scanstring(value, 1)[0])


def find_end(text: str, at: int) -> int:
    """Return where the value that begins at `at` ends."""
    if text[at] == '"':
        return int(scanstring(text, at + 1)[1])
    if text[at] not in "{[":
        scalar = _SCALAR.match(text, at)
        return scalar.end() if scalar else at
    depth = 0
    for match in _STRUCTURE.finditer(text, at):
        mark = match.group()
        depth += (mark in "{[") - (mark in "}]")
        if depth == 0:
            return match.end()
    return len(text)
