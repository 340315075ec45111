"""Parses names of tables and columns from clients. The source looks them up; they are never part of a statement."""

from __future__ import annotations

import re

_PART = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"\s*({_PART})(?:\s*\.\s*({_PART}))?\s*")


def tables(text: str) -> list[str]:
    """Return the tables that a text may name, the likeliest first, each quoted: as SQL reads it, then letter by letter.

    Empty if the text cannot be a name.
    """
    if "\0" in text:
        return []
    found = []
    if (parsed := _NAME.fullmatch(text)) is not None:
        found.append(_quoted(*(_folded(part) for part in parsed.groups() if part is not None)))
    schema, dot, name = text.partition(".")
    if schema and name and dot:
        found.append(_quoted(schema, name))
    if text:
        found.append(_quoted(text))
    return list(dict.fromkeys(found))


def column(text: str, columns: list[str]) -> str | None:
    """Return the column that a text names: letter by letter, or as SQL reads it; None if there is none."""
    if text in columns:
        return text
    parsed = _NAME.fullmatch(text)
    folded = _folded(parsed[1]) if parsed is not None and parsed[2] is None else None
    return folded if folded in columns else None


def _folded(part: str) -> str:
    """Fold a name to lower case as the server does in an encoding of several bytes: only letters of ASCII."""
    if part.startswith('"'):
        return part[1:-1].replace('""', '"')
    return "".join(letter.lower() if letter.isascii() else letter for letter in part)


def _quoted(*parts: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
