"""Text for people, in which no foreign name can forge a line, move the cursor, or hide the text after the name.

Names of tables, slots and clients may hold line breaks, escape sequences of terminals, and characters that turn the
direction of text. The program escapes these characters once, when text leaves it: in the text log and in the output of
commands. JSON needs no such escapes. Pure: no database.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TextIO

_QUOTED = re.compile(r""""(?:[^"]|"")*"|\bE'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'""", re.DOTALL)

_LITERAL = re.compile(rf"(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$(?P<body>.*?)\$(?P=tag)\$|{_QUOTED.pattern}", re.DOTALL)

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
        collation column concurrently constraint create cross current_catalog current_date current_role current_schema
        current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for
        foreign freeze from full grant group having ilike in initially inner intersect into is isnull join lateral
        leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps
        placing primary references returning right select session_user similar some symmetric system_user table
        tablesample then to trailing true union unique user using variadic verbose when where window with""",
    )
)
"""Words that Postgres accepts as a name only in quotes."""


def escaped(text: str) -> str:
    """Return the text with each character that is not printable written as in Python: a line break as \\n."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(*lines: object, file: TextIO | None = None) -> None:
    """Print each value on one line, escaped, and flush; to standard output by default."""
    for line in lines:
        print(escaped(str(line)), file=file or sys.stdout, flush=True)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def below(text: str) -> str:
    """Indent each line of a text such as a traceback, so that no line looks like a line of the log."""
    return "\n".join(f"    {escaped(line)}" for line in text.split("\n"))


def in_json(text: str) -> str:
    """Return equal JSON in which every character is printable; others are escaped in its strings."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def in_comment(text: str) -> str:
    """Return a name or statement as ASCII JSON for a comment in printed SQL, so that no line break ends the comment."""
    return json.dumps(text)


def identifier(*names: str) -> str:
    """Return a name quoted for SQL, in one printable line; several names are joined by dots, as schema and table."""
    return sql(".".join('"' + name.replace('"', '""') + '"' for name in names))


def shortest(*names: str) -> str:
    """Return a name for SQL as `identifier` does, but without quotes if Postgres needs none."""
    plain = all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED for name in names)
    return ".".join(names) if plain else identifier(*names)


def sql(text: str) -> str:
    """Return equal SQL whose quoted names and strings have only printable characters.

    Use it for SQL within text for people: `escaped` leaves the result unchanged.
    """
    return _QUOTED.sub(lambda found: found[0] if found[0].isprintable() else _unicode(found[0]), text)


def sql_in_one_line(text: str) -> str:
    """Return the definition of a function as one printable line, which does the same as the given SQL.

    The definition must have no comments outside of the function's body. The body becomes a string.
    """

    def printed(found: re.Match[str]) -> str:
        body = found["body"]
        quoted = found[0] if body is None else "'" + body.replace("'", "''") + "'"
        return found[0] if found[0].isprintable() else _unicode(quoted)

    return re.sub(r" *[\t-\r]\s*", " ", _LITERAL.sub(printed, text))


def _unicode(quoted: str) -> str:
    literal = quoted if quoted.startswith("E") else quoted.replace("\\", "\\\\")
    if quoted.startswith('"'):
        return "U&" + _points(literal, "\\{:04x}", "\\+{:06x}")
    return ("" if quoted.startswith("E") else "E") + _points(literal, "\\u{:04x}", "\\U{:08x}")


def _points(text: str, short: str, long: str) -> str:
    return "".join(c if c.isprintable() else (short if ord(c) < 0x10000 else long).format(ord(c)) for c in text)
