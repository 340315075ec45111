"""What a client's text may name: it is taken apart here, looked up by the source, and never a part of a statement."""

from __future__ import annotations

import re

_PART = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"\s*({_PART})(?:\s*\.\s*({_PART}))?\s*")


def tables(text: str) -> list[str]:
    """The tables that this may be, the likeliest first, each quoted: as SQL reads it, then letter by letter.

    Empty for what can be no name.
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
    """The column that this names: letter by letter, or as SQL reads it; None where there is none of these."""
    if text in columns:
        return text
    parsed = _NAME.fullmatch(text)
    folded = _folded(parsed[1]) if parsed is not None and parsed[2] is None else None
    return folded if folded in columns else None


def _folded(part: str) -> str:
    """As the server folds names of any encoding of several bytes: only letters of ASCII."""
    if part.startswith('"'):
        return part[1:-1].replace('""', '"')
    return "".join(letter.lower() if letter.isascii() else letter for letter in part)


def _quoted(*parts: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
